//go:build linux && !portable

package proxy

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/hashicorp/go-multierror"
	"golang.org/x/sys/unix"
)

var errDialTimeout = fmt.Errorf("no answer: %w", os.ErrDeadlineExceeded)

// dialing is a session that has no endpoint yet. An endpoint that refuses is
// passed over at once; beside one that does not answer within the fallback
// delay another is tried, and the first to connect wins. The balancer hears of
// every endpoint that failed or was outrun.
type dialing struct {
	session *session
	tried   []netip.AddrPort
	pending []*attempt    // in the order of their start
	until   time.Duration // when all attempts are given up
	next    time.Duration // when another is made beside them
	extra   int           // descriptors taken for attempts beside the first
	errs    *multierror.Error

	firstTried [1]netip.AddrPort // most need no more
	first      attempt
}

// attempt is a connect under way.
type attempt struct {
	dialing  *dialing
	fd       int
	endpoint netip.AddrPort
	began    time.Duration
}

// dial looks for an endpoint that answers.
func (s *session) dial() {
	t := s.loop.engine.shared.timeouts
	d := s.loop.unused.dialings.get()
	*d = dialing{session: s, until: s.loop.now + t.dial, pending: d.pending[:0]}
	d.tried = d.firstTried[:0]
	s.dialing = d
	d.try()
}

// try starts an attempt with an endpoint that was not tried yet. Where there is
// none, and none that may still answer, the client is refused.
func (d *dialing) try() {
	s := d.session
	for len(d.tried) < maxAttempts && d.mayTry() {
		endpoint, ok := s.trace.pick(s.listener.group, s.clientAddr.Addr(), d.tried)
		if !ok {
			break
		}
		d.tried = append(d.tried, endpoint)
		a := &d.first
		if len(d.tried) > 1 {
			a = new(attempt)
		}
		*a = attempt{dialing: d, endpoint: endpoint, began: s.loop.now}
		if err := a.start(); err != nil {
			d.failed(a, err)
			continue
		}
		d.pending = append(d.pending, a)
		d.next = s.loop.now + s.loop.engine.shared.timeouts.fallback
		s.loop.arm(s, min(d.next, d.until))
		return
	}
	switch {
	case len(d.pending) > 0: // they may answer yet
		s.loop.arm(s, d.until)
	case len(d.tried) == 0:
		s.refuse(refusedNoEndpoint, nil)
	default:
		s.refuse(refusedDialFailed, d.errs.ErrorOrNil())
	}
}

// mayTry takes a descriptor for an attempt beside others. The first uses the
// session's own.
func (d *dialing) mayTry() bool {
	if len(d.pending) <= d.extra {
		return true
	}
	if !d.session.loop.engine.shared.budget.take(1) {
		return false
	}
	d.extra++
	return true
}

// settle gives back what ended attempts have taken.
func (d *dialing) settle() {
	if n := d.extra - max(len(d.pending)-1, 0); n > 0 {
		d.session.loop.engine.shared.budget.give(n)
		d.extra -= n
	}
}

// start connects, without waiting.
func (a *attempt) start() error {
	s := a.dialing.session
	s.loop.engine.shared.metrics.dials.Inc()
	from := s.loop.engine.shared.senderOf(s.clientAddr.Addr(), a.endpoint.Addr())
	s.trace.from(from)
	fd, err := s.loop.connect(s.listener, a.endpoint, from)
	if err != nil {
		return err
	}
	a.fd = fd
	if err := s.loop.watch(fd, a, edge); err != nil {
		s.loop.close(fd)
		return err
	}
	return nil
}

// ready is told that a connect has come to its end.
func (a *attempt) ready(events uint32) {
	d, l := a.dialing, a.dialing.session.loop
	err := a.outcome(events)
	if l.engine.shared.own.hasComeBack(l.own[a.fd]) {
		err = errOwnDial
	}
	if err == nil && events&unix.EPOLLOUT == 0 {
		return
	}
	at := 0
	for d.pending[at] != a {
		at++
	}
	d.pending = append(d.pending[:at], d.pending[at+1:]...)
	if err != nil {
		l.close(a.fd)
		d.settle()
		d.failed(a, err)
		d.try()
		return
	}
	group := d.session.listener.group
	for i, other := range d.pending {
		l.close(other.fd)
		if d.session.trace != nil {
			d.session.trace.outrun(other.endpoint, l.now-other.began)
		}
		if i < at { // it had more time
			group.Failed(other.endpoint)
		}
	}
	d.pending = d.pending[:0]
	d.settle()
	group.Succeeded(d.session.clientAddr.Addr(), a.endpoint)
	d.session.endpoint.hears(events)
	d.session.connected(a.fd, a.endpoint)
}

// outcome is why a connect has failed. Only where an event says that there is
// an error need it be asked for.
func (a *attempt) outcome(events uint32) error {
	if events&(unix.EPOLLERR|unix.EPOLLHUP) == 0 {
		return nil
	}
	errno, err := unix.GetsockoptInt(a.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && errno != 0 {
		err = syscall.Errno(errno)
	}
	return os.NewSyscallError("connect", err)
}

// failed notes why an attempt came to nothing.
func (d *dialing) failed(a *attempt, err error) {
	shared := d.session.loop.engine.shared
	shared.metrics.dialFailed(err)
	if t := d.session.trace; t != nil {
		t.dialFailed(a.endpoint, d.session.loop.now-a.began, err)
	}
	d.errs = multierror.Append(d.errs, fmt.Errorf("endpoint %v: %w", a.endpoint, err))
	if !isLocal(err) {
		d.session.listener.group.Failed(a.endpoint)
	}
}

// expired is called when it is time for another attempt, or to give up.
func (d *dialing) expired() {
	if d.session.loop.now < d.until {
		d.try()
		return
	}
	for _, a := range d.pending {
		d.failed(a, errDialTimeout)
	}
	d.session.refuse(refusedDialFailed, d.errs.ErrorOrNil())
}

// close ends the attempts that are under way.
func (d *dialing) close() {
	for _, a := range d.pending {
		d.session.loop.close(a.fd)
	}
	d.pending = d.pending[:0]
	d.settle()
}

// connect begins to connect to an endpoint of a listener's. Where that is on
// this host, the connection is remembered, so as to be known if it comes back.
func (l *loop) connect(listener *tcpListener, to netip.AddrPort, from sender) (int, error) {
	own := l.engine.shared.own
	if from.isClients() || !own.isHere(to.Addr()) {
		return beginConnect(to, from)
	}
	// Another loop may accept it before this call has returned, and must not ask
	// whose it is before that is known.
	own.mu.Lock()
	defer own.mu.Unlock()
	own.known.Add(1)
	fd, err := beginConnect(to, from)
	if err != nil {
		own.known.Add(-1)
		return -1, err
	}
	d := &ownDial{foundLoop: foundLoop{listener.key, to}, group: listener.group}
	own.add(localOf(fd), d)
	l.own[fd] = d
	return fd, nil
}

// localOf is a socket's own address.
func localOf(fd int) netip.AddrPort {
	name, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}
	}
	switch name := name.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(name.Addr), uint16(name.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(withZone(netip.AddrFrom16(name.Addr).Unmap(), name.ZoneId), uint16(name.Port))
	}
	return netip.AddrPort{}
}

// beginConnect begins to connect a socket of its own.
func beginConnect(to netip.AddrPort, from sender) (int, error) {
	ipv6 := !to.Addr().Unmap().Is4()
	domain := unix.AF_INET
	if ipv6 {
		domain = unix.AF_INET6
	}
	fd, errno := socketFD(domain)
	if errno != 0 {
		return -1, os.NewSyscallError("socket", errno)
	}
	err := setOption(fd, unix.SOL_SOCKET, unix.SO_OOBINLINE, 1)
	if err == nil {
		err = from.prepare(fd)
	}
	if err == nil {
		err = connect(fd, to, ipv6)
	}
	if err != nil && !errors.Is(err, unix.EINPROGRESS) {
		closeFD(fd)
		return -1, os.NewSyscallError("connect", err)
	}
	return fd, nil
}
