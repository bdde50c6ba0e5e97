package proxy

import (
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// udpListener serves the datagrams of one address. It is born held; serve and
// hold switch it, one at a time.
type udpListener struct {
	key     service.Key
	sock    *udpSocket
	group   balancer
	account *account
	shared  *shared
	idle    time.Duration // of flows

	mu     sync.Mutex // guards server against countFlows
	server *udpServer // nil while held
}

func newUDPListener(key service.Key, addr netip.AddrPort, group balancer, account *account, s *shared) (*udpListener, error) {
	sock, err := openUDP(addr)
	if err != nil {
		return nil, err
	}
	return &udpListener{key: key, sock: sock, group: group, account: account, shared: s, idle: s.udpIdle}, nil
}

func (l *udpListener) addr() netip.AddrPort { return l.sock.addr }

func (l *udpListener) isServing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.server != nil
}

// isBroken is never so: the kernel leaves a UDP socket that was bound its port.
func (l *udpListener) isBroken() bool { return false }

func (l *udpListener) serve() error {
	if l.server != nil {
		return nil
	}
	conn, err := l.sock.release()
	if err != nil {
		return err
	}
	server, err := newUDPServer(udpConfig{
		flows: l.shared.udp, conn: conn, balancer: l.group, account: l.account, trace: l.shared.tracer.of(l.key, l.addr()), idle: l.idle,
		log: l.shared.log.WithField("service", l.key.String()),
	})
	if err != nil {
		err = errors.Join(err, l.sock.hold(conn))
		_ = conn.Close()
		return err
	}
	l.set(server)
	return nil
}

func (l *udpListener) hold() error {
	if l.server == nil {
		return nil
	}
	if err := l.sock.hold(l.server); err != nil {
		return err
	}
	l.server.close()
	l.set(nil)
	return nil
}

// setIdle changes the idle time of flows, of those that exist too.
func (l *udpListener) setIdle(idle time.Duration) {
	if idle == l.idle {
		return
	}
	l.idle = idle
	if l.server != nil {
		l.server.setIdle(idle)
	}
}

func (l *udpListener) set(server *udpServer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.server = server
}

// close frees the address and ends its flows: they have no way back without it.
func (l *udpListener) close() {
	if l.server != nil {
		l.server.close()
	}
	_ = l.sock.close()
}

func (l *udpListener) endpointsChanged(keep func(client netip.Addr, endpoint netip.AddrPort) bool) {
	if l.server != nil {
		l.server.endpointsChanged(keep)
	}
}

func (l *udpListener) countFlows(to map[netip.AddrPort]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.server != nil {
		l.server.countByEndpoint(to)
	}
}

func (l *udpListener) flows(most int) []FlowStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.server == nil {
		return nil
	}
	return l.server.status(most)
}
