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
	open    *openCount // connections of its Service
	account *account
	trace   *portTrace // nil: not traced
	engine  *tcpEngine
	serving bool
}

func newTCPListener(key service.Key, addr netip.AddrPort, group balancer, open *openCount, account *account, s *shared) (*tcpListener, error) {
	sock, err := openTCP(addr)
	if err != nil {
		return nil, err
	}
	// Accepted sockets inherit these: no waiting for more to send (Nagle's
	// algorithm), and urgent bytes in their place in the stream.
	err = errors.Join(
		setOption(sock.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		setOption(sock.fd, unix.SOL_SOCKET, unix.SO_OOBINLINE, 1),
		keepTCP(sock.fd, s.timeouts.keepAlive),
	)
	if err != nil {
		_ = sock.close()
		return nil, err
	}
	return &tcpListener{key: key, sock: sock, group: group, open: open, account: account, trace: s.tracer.of(key, sock.addr), engine: s.tcp}, nil
}

func (l *tcpListener) addr() netip.AddrPort { return l.sock.addr }
func (l *tcpListener) isServing() bool      { return l.serving }
func (l *tcpListener) isBroken() bool       { return l.serving && !l.sock.listens() }

func (l *tcpListener) serve() error {
	if l.serving {
		return nil
	}
	if err := l.sock.listen(); err != nil {
		return err
	}
	if err := l.watch(); err != nil {
		return errors.Join(err, l.sock.hold())
	}
	l.serving = true
	return nil
}

func (l *tcpListener) hold() error {
	if !l.serving {
		return nil
	}
	l.unwatch()
	if err := l.sock.hold(); err != nil {
		return errors.Join(err, l.watch())
	}
	l.serving = false
	return nil
}

// watch has every loop accept.
func (l *tcpListener) watch() error {
	errs := make([]error, len(l.engine.loops))
	l.engine.inLoops(func(i int, loop *loop) { errs[i] = loop.watch(l.sock.fd, &acceptor{l, loop}, acceptEvents) })
	err := errors.Join(errs...)
	if err != nil {
		l.unwatch()
	}
	return err
}

// unwatch returns when no loop will touch the socket any more.
func (l *tcpListener) unwatch() {
	l.engine.inLoops(func(_ int, loop *loop) { loop.forget(l) })
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
func (l *tcpListener) endpointsChanged(func(client netip.Addr, endpoint netip.AddrPort) bool) {}

// countFlows: TCP has connections, which are counted where they are kept.
func (l *tcpListener) countFlows(map[netip.AddrPort]int) {}

func (l *tcpListener) flows(int) []FlowStatus { return nil }

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
	for i := range atOnce {
		if !a.accept(i == 0) {
			return
		}
	}
	a.loop.again = true // level-triggered: the rest is found at the next look
}

// accept takes one connection; false if there is none, or no way to take it.
// It is known whether one waits.
func (a *acceptor) accept(waits bool) bool {
	s := a.engine.shared
	if !s.budget.take(2) {
		if !waits {
			a.loop.again = true // the next look tells
			return false
		}
		a.pause("descriptors", "descriptors are used up: new connections wait until others end")
		return false
	}
	fd, client, err := acceptFD(a.sock.fd)
	if err == 0 {
		if why := a.refuses(fd, client); why != "" {
			s.turnAway(why, a.key, client, a.trace) // first: who sees the reset finds it counted
			resetOnClose(fd)
			_ = unix.Close(fd)
			s.budget.give(2)
			return true
		}
		l := a.engine.loopFor(a.loop)
		l.load.Add(1)
		if l == a.loop {
			l.begin(a.tcpListener, fd, client)
		} else {
			l.handOver(arrival{a.tcpListener, fd, client})
		}
		return true
	}
	s.budget.give(2)
	switch err {
	case unix.EAGAIN: // another loop was faster
		return false
	case unix.ECONNABORTED, unix.EINTR, unix.EPERM, unix.EPROTO: // this client's, others may wait
		return true
	case unix.EINVAL: // somebody has closed it
		s.wake()
	}
	a.pause(reason(err), "cannot accept connections ("+err.Error()+"): new connections wait")
	return false
}

// refuses says why a client is to be reset; else it is admitted.
func (a *acceptor) refuses(fd int, client netip.AddrPort) string {
	if a.engine.shared.isOwn(client, func() netip.AddrPort { return calledBy(fd) }) {
		return refusedOwnDial
	}
	if bars(a.group, client.Addr()) {
		return refusedSource
	}
	return a.engine.shared.limits.admit(client.Addr(), a.open)
}

// pause leaves connections in the kernel's queue for a moment.
func (a *acceptor) pause(why, message string) {
	a.engine.shared.metrics.acceptErrors.WithLabelValues(why).Inc()
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
	a.loop.again = true
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

// keepTCP has the kernel notice when a connection's peer has vanished.
func keepTCP(fd int, period time.Duration) error {
	if period <= 0 {
		return nil
	}
	seconds := int((period + time.Second - 1) / time.Second) // what the kernel takes
	return errors.Join(
		setOption(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1),
		setOption(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, seconds),
		setOption(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, seconds),
		setOption(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepAliveProbes),
	)
}

func setOption(fd, level, option, value int) error {
	if err := setOptionFD(fd, level, option, int32(value)); err != 0 {
		return os.NewSyscallError("setsockopt", err)
	}
	return nil
}
