//go:build linux && !portable

package proxy

import (
	"errors"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// tcpListener accepts the connections of one address. It is born held; serve
// and hold switch it, one at a time.
type tcpListener struct {
	key     service.Key
	sock    *tcpSocket
	group   balancer
	engine  *tcpEngine
	serving bool
}

func newTCPListener(key service.Key, addr netip.AddrPort, group balancer, s *shared) (*tcpListener, error) {
	sock, err := openTCP(addr)
	if err != nil {
		return nil, err
	}
	if err := prepareTCP(sock.fd, s.timeouts.keepAlive); err != nil { // what accepted sockets inherit
		_ = sock.close()
		return nil, err
	}
	return &tcpListener{key: key, sock: sock, group: group, engine: s.tcp}, nil
}

func (l *tcpListener) addr() netip.AddrPort { return l.sock.addr }
func (l *tcpListener) isServing() bool      { return l.serving }

func (l *tcpListener) serve() error {
	if l.serving {
		return nil
	}
	if err := l.sock.listen(); err != nil {
		return err
	}
	for _, loop := range l.engine.loops {
		var err error
		loop.call(func() { err = loop.watch(l.sock.fd, &acceptor{l, loop}, acceptEvents) })
		if err != nil {
			l.unwatch()
			_ = l.sock.hold()
			return err
		}
	}
	l.serving = true
	return nil
}

func (l *tcpListener) hold() error {
	if !l.serving {
		return nil
	}
	l.unwatch()
	l.serving = false
	return l.sock.hold()
}

// unwatch returns when no loop will touch the socket any more.
func (l *tcpListener) unwatch() {
	for _, loop := range l.engine.loops {
		loop.call(func() { loop.forget(l) })
	}
}

// close frees the address. Connections go on.
func (l *tcpListener) close() {
	if l.serving {
		l.unwatch()
	}
	_ = l.sock.close()
}

// endpointsChanged has nothing to do: connections to an endpoint that is gone
// end by themselves.
func (l *tcpListener) endpointsChanged(func(netip.AddrPort) bool) {}

// countFlows: TCP has connections, which are counted where they are kept.
func (l *tcpListener) countFlows(map[netip.AddrPort]int) {}

// acceptEvents: level-triggered, and one loop is woken for a connection, not all.
const acceptEvents = unix.EPOLLIN | unix.EPOLLEXCLUSIVE

// acceptor is a listener in one loop.
type acceptor struct {
	*tcpListener
	loop *loop
}

// ready accepts some of the connections that wait.
func (a *acceptor) ready(uint32) {
	const atOnce = 16
	for range atOnce {
		if !a.accept() {
			return
		}
	}
	a.loop.again = true // level-triggered: the rest is found at the next look
}

// accept takes one connection; false if there is none, or no way to take it.
func (a *acceptor) accept() bool {
	s := a.engine.shared
	if !s.budget.take(2) {
		a.pause("descriptors", "descriptors are used up: new connections wait until others end")
		return false
	}
	fd, client, err := acceptFD(a.sock.fd)
	if err == 0 {
		l := a.engine.loopFor(a.loop)
		a.engine.sessions.Add(1)
		l.load.Add(1)
		if l == a.loop {
			l.begin(a.tcpListener, fd, client)
		} else {
			l.post(func() { l.begin(a.tcpListener, fd, client) })
		}
		return true
	}
	s.budget.give(2)
	switch err {
	case unix.EAGAIN: // another loop was faster
		return false
	case unix.ECONNABORTED, unix.EINTR, unix.EPERM, unix.EPROTO: // this client's, others may wait
		return true
	}
	a.pause(reason(err), "cannot accept connections ("+err.Error()+"): new connections wait")
	return false
}

// pause leaves connections in the kernel's queue for a moment.
func (a *acceptor) pause(why, message string) {
	a.engine.shared.metrics.AcceptErrors.WithLabelValues(why).Inc()
	a.engine.shared.warn.limited(a.engine.shared.log, message)
	a.loop.unwatch(a.sock.fd)
	a.loop.paused = append(a.loop.paused, a)
	a.loop.resume = a.loop.now + acceptRetry
}

// resume accepts again.
func (a *acceptor) resume() {
	if err := a.loop.watch(a.sock.fd, a, acceptEvents); err != nil {
		a.pause(reason(err), "cannot accept connections ("+err.Error()+"): new connections wait")
		return
	}
	a.ready(0)
}

// forget stops accepting for a listener.
func (l *loop) forget(listener *tcpListener) {
	l.unwatch(listener.sock.fd)
	for i, a := range l.paused {
		if a.tcpListener == listener {
			l.paused = append(l.paused[:i], l.paused[i+1:]...)
			return
		}
	}
}

// prepareTCP sets what every connection of the proxy has: no waiting for more
// to send (Nagle), urgent bytes in their place in the stream, and notice of a
// peer that has vanished.
func prepareTCP(fd int, keepAlive time.Duration) error {
	set := func(level, option, value int) error {
		return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, level, option, value))
	}
	err := errors.Join(
		set(unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		set(unix.SOL_SOCKET, unix.SO_OOBINLINE, 1),
	)
	if keepAlive <= 0 || err != nil {
		return err
	}
	seconds := int((keepAlive + time.Second - 1) / time.Second) // what the kernel takes
	for _, o := range [][3]int{
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, seconds},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, seconds},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, userTimeouts},
		{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(keepAlive.Milliseconds()) * userTimeouts},
	} {
		if err := set(o[0], o[1], o[2]); err != nil {
			return err
		}
	}
	return nil
}
