//go:build !linux || portable

package proxy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// errHeld is what accept returns while a socket refuses connections.
var errHeld = errors.New("socket is held")

// tcpListener accepts the connections of one address. It is born held; serve
// and hold switch it, one at a time.
type tcpListener struct {
	key     service.Key
	sock    *tcpSocket
	group   balancer
	open    *openCount // connections of its Service
	account *account
	trace   *portTrace // nil: not traced
	shared  *shared

	accepting sync.WaitGroup // the accept loop, which runs while it serves
	serving   bool
	stop      context.CancelFunc // of the accept loop
}

func newTCPListener(key service.Key, addr netip.AddrPort, group balancer, open *openCount, account *account, s *shared) (*tcpListener, error) {
	sock, err := openTCP(addr)
	if err != nil {
		return nil, err
	}
	return &tcpListener{key: key, sock: sock, group: group, open: open, account: account, trace: s.tracer.of(key, sock.addr), shared: s}, nil
}

func (l *tcpListener) addr() netip.AddrPort { return l.sock.addr }
func (l *tcpListener) isServing() bool      { return l.serving }
func (l *tcpListener) isBroken() bool       { return false } // no portable call tells

func (l *tcpListener) serve() error {
	if l.serving {
		return nil
	}
	if err := l.sock.listen(); err != nil {
		return err
	}
	l.serving = true
	var ctx context.Context
	ctx, l.stop = context.WithCancel(context.Background())
	l.accepting.Add(1)
	go l.acceptLoop(ctx)
	return nil
}

func (l *tcpListener) hold() error {
	if !l.serving {
		return nil
	}
	if err := l.sock.hold(); err != nil {
		return err
	}
	l.stop()
	l.accepting.Wait()
	l.serving = false
	return nil
}

// close stops accepting and frees the address. Connections go on.
func (l *tcpListener) close() {
	if l.serving {
		l.stop()
	}
	_ = l.sock.close()
	l.accepting.Wait()
}

// endpointsChanged has nothing to do: connections to an endpoint that is gone
// end by themselves.
func (l *tcpListener) endpointsChanged(func(client netip.Addr, endpoint netip.AddrPort) bool) {}

// countFlows: TCP has connections, which are counted where they are kept.
func (l *tcpListener) countFlows(map[netip.AddrPort]int) {}

func (l *tcpListener) flows(int) []FlowStatus { return nil }

// acceptLoop accepts until the socket is held or closed, and ctx ends.
func (l *tcpListener) acceptLoop(ctx context.Context) {
	defer l.accepting.Done()
	const first, last = 5 * time.Millisecond, time.Second
	pause := first
	for {
		conn, err := l.sock.accept()
		switch {
		case err == nil:
			pause = first
			client := clientOf(conn) // whether it is a dial of the proxy's own is for handle to find out
			why := refusedSource
			if !bars(l.group, client.Addr()) {
				why = l.shared.limits.admit(client.Addr(), l.open)
			}
			if why != "" {
				l.shared.turnAway(why, l.key, client, l.trace) // first: who sees the reset finds it counted
				(&peer{conn: conn}).reset()
				continue
			}
			if !l.takeBudget(ctx) {
				_ = conn.Close()
				l.shared.limits.release(client.Addr(), l.open)
				return
			}
			l.shared.tcp.start(func() { l.handle(conn) })
		case errors.Is(err, errHeld), errors.Is(err, net.ErrClosed):
			return
		default:
			// Out of descriptors or memory: the connection waits in the queue
			// while others end. A client that gave up ends here too.
			l.shared.metrics.acceptErrors.WithLabelValues(reason(err)).Inc()
			l.shared.warn.limited(l.shared.log.WithError(err), "cannot accept connections, trying again until descriptors are free")
			if !sleep(ctx, pause) {
				return
			}
			pause = min(2*pause, last)
		}
	}
}

// clientOf is who has connected.
func clientOf(conn *net.TCPConn) netip.AddrPort { return tcpAddr(conn.RemoteAddr()) }

func tcpAddr(a net.Addr) netip.AddrPort {
	at := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// takeBudget takes the two descriptors of a proxied connection from the budget and
// waits while there are none: meanwhile clients queue in the kernel. It is
// false when ctx ends before there are.
func (l *tcpListener) takeBudget(ctx context.Context) bool {
	for {
		freed := l.shared.budget.waitFreed()
		if l.shared.budget.take(2) {
			return true
		}
		l.shared.metrics.acceptErrors.WithLabelValues("descriptors").Inc()
		l.shared.warn.limited(l.shared.log, "descriptors are used up: new connections wait until others end")
		select {
		case <-freed:
		case <-ctx.Done():
			return false
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// handle serves one client: picks, connects, relays.
func (l *tcpListener) handle(conn *net.TCPConn) {
	s := l.shared
	client := clientOf(conn)
	defer s.limits.release(client.Addr(), l.open)
	defer s.budget.give(2)
	s.tcp.dialer.under.settle(client.Addr())
	// What rules have made of the address cannot be asked for here: a dial that
	// comes back by somebody else's is taken for a client, and limits bound it.
	if s.isOwn(client, func() netip.AddrPort { return tcpAddr(conn.LocalAddr()) }) {
		s.turnAway(refusedOwnDial, l.key, client, l.trace)
		(&peer{conn: conn}).reset()
		return
	}
	_ = conn.SetKeepAliveConfig(keepAliveConfig(s.timeouts.keepAlive))
	c := &connection{key: l.key, account: l.account, client: client, since: time.Now()}
	s.tcp.add(c)
	defer s.tcp.remove(c)
	var trace *trace
	if l.trace != nil {
		trace = l.trace.accepted(client, tcpAddr(conn.LocalAddr()))
	}

	to, err := s.tcp.dialer.connect(s.tcp.ctx, l.key, l.group, client.Addr(), trace)
	if err != nil {
		why := refusedNoEndpoint
		if !errors.Is(err, errNoEndpoint) {
			why = refusedDialFailed
		}
		s.metrics.refused[why].Inc()
		(&peer{conn: conn}).reset()
		if trace != nil {
			trace.refused(why)
			trace.ended(endedAbort, 0, 0)
		}
		s.log.WithFields(logrus.Fields{"service": l.key, "client": client}).WithError(err).Debug("client refused")
		return
	}

	r := newRelay(conn, to.conn, s.timeouts.halfClose, s.timeouts.idle)
	if r.trace = trace; trace != nil {
		trace.connected(to.endpoint, time.Since(c.since))
	}
	s.tcp.connected(c, to.endpoint, r)
	l.account.opened.Add(1)
	l.account.active.Add(1)
	defer s.own.remove(to.own)
	ended := r.run()
	l.account.active.Add(-1)
	if trace != nil {
		trace.ended(ended, r.up.bytes.Load(), r.down.bytes.Load())
	}
	s.metrics.connectionEnded(ended, time.Since(c.since))
	s.log.WithFields(logrus.Fields{"service": l.key, "client": client, "endpoint": to.endpoint, "ended": ended}).Debug("connection ended")
}

// waitFreed is closed when traffic next gives something back.
func (b *budget) waitFreed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.freed == nil {
		b.freed = make(chan struct{})
	}
	return b.freed
}
