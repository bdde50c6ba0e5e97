//go:build linux && !portable

package proxy

import (
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// session is one client's connection and the one to its endpoint. It belongs
// to a loop, from begin to finish, and owns two descriptors of the budget.
type session struct {
	loop       *loop
	listener   *tcpListener
	trace      *trace // nil for nearly all
	clientAddr netip.AddrPort

	client, endpoint end
	endpointAddr     netip.AddrPort // set when connected, under the loop's mu
	dialing          *dialing       // nil when connected

	began    time.Duration
	used     time.Duration // when a byte last passed
	flushing *end          // wait until its peer has everything, then reset it
	left     int           // bytes that its peer had not acknowledged when last looked
	patience time.Duration // until when left must have shrunk
	settled  bool
	over     bool
	isBusy   bool

	due   time.Duration // when timer expires
	timer int           // 1 + index among the loop's timers; 0: none
}

// end is one side of a session: a socket, and what was read from it and not
// yet written to the other side's.
type end struct {
	session *session
	fd      int
	carried atomic.Int64 // bytes that went from here to the other side; read by status

	readable, writable bool // as far as events and calls have told
	asked              bool // to be told when it is writable again
	eager              bool // there may be a mark or an error behind: a short read is not the last
	ended              bool // its stream has ended, and has no mark in it: a short read is the last of all
	ending             bool // its stream has ended or is broken, behind what is still to be read
	eof                bool // read to its end
	broken             bool // reset or timed out: tell the other side by a reset
	finished           bool // its stream was ended from here
	written            bool // something was written to it
	delays             bool // Nagle's algorithm is on

	bulk   bool        // the last read filled all there was room for
	held   *heldChunk  // what a short write left over
	pipe   *kernelPipe // bytes on their way without a copy
	inPipe int
}

// begin makes a session of an accepted connection.
func (l *loop) begin(listener *tcpListener, fd int, client netip.AddrPort) {
	s := l.unused.sessions.get()
	*s = session{loop: l, listener: listener, clientAddr: client, began: l.now, used: l.now}
	s.client = end{session: s, fd: fd, readable: true, writable: true}
	s.endpoint = end{session: s, fd: -1, writable: true, asked: true, delays: true}
	l.mu.Lock()
	l.sessions[s] = struct{}{}
	l.mu.Unlock()
	if listener.trace != nil {
		s.trace = listener.trace.accepted(client, calledBy(fd))
	}
	if l.stopped {
		s.abort()
		return
	}
	s.dial()
}

// connected goes from dialling to relaying, over fd.
func (s *session) connected(fd int, endpoint netip.AddrPort) {
	l := s.loop
	l.mu.Lock()
	s.endpointAddr = endpoint
	l.mu.Unlock()
	l.unused.dialings.put(s.dialing)
	s.dialing = nil
	s.endpoint.fd = fd
	s.used = l.now
	l.watched[fd].source = &s.endpoint
	if s.trace != nil {
		s.trace.connected(endpoint, l.now-s.began)
	}
	s.listener.account.opened.Add(1)
	s.listener.account.active.Add(1)
	s.watch()
	s.turn() // what the client has sent already
	if s.over {
		return
	}
	if err := l.watch(s.client.fd, &s.client, s.client.interest()); err != nil {
		l.engine.log(s, endpoint, err, "cannot watch the client")
		s.reset(endedAbort)
	}
}

// watch arms the timer for what may be due first from now on.
func (s *session) watch() {
	next := s.quiet()
	if !s.settled && (next == 0 || settling < next) {
		next = settling
	}
	if next > 0 {
		s.loop.arm(s, s.loop.now+next)
	}
}

// settling is how long a connection must have lived to be worth the four calls
// of keepTCP. Those that end sooner, and in many a service that is most, are
// spared them.
const settling = time.Second

// settle is for a connection that has lived for some time.
func (s *session) settle() {
	s.settled = true
	if err := keepTCP(s.endpoint.fd, s.loop.engine.shared.timeouts.keepAlive); err != nil {
		s.loop.engine.log(s, s.endpointAddr, err, "no keepalive for the endpoint's connection")
	}
}

// interest is what the end is to be told of. To be told that it is writable,
// which most always are, would wake the loop once for nothing.
func (e *end) interest() uint32 {
	if e.asked = !e.writable; e.asked {
		return edge
	}
	return edge &^ unix.EPOLLOUT
}

// full notes that the end takes nothing more for now.
func (e *end) full() {
	e.writable = false
	if l := e.session.loop; !e.asked && l.watches(e.fd) {
		e.asked = true
		l.rewatch(e.fd, edge)
	}
}

// ready is told what epoll found.
func (e *end) ready(events uint32) {
	e.hears(events)
	if events&(unix.EPOLLOUT|unix.EPOLLERR|unix.EPOLLHUP) != 0 {
		e.writable = true
	}
	e.session.turn()
}

// hears notes what events say of what may be read. A stream that has ended
// without an urgent mark in it, or an error, holds what one read brings where
// that falls short: nothing comes after the end.
func (e *end) hears(events uint32) {
	const ending = unix.EPOLLRDHUP | unix.EPOLLPRI | unix.EPOLLERR
	e.ending = e.ending || events&(ending&^unix.EPOLLPRI) != 0
	if events&(unix.EPOLLIN|eagerEvents) != 0 {
		e.readable = true
	}
	e.ended = e.ended || events&ending == unix.EPOLLRDHUP
	e.eager = e.eager || events&eagerEvents != 0
}

// turn carries what there is to carry, both ways, as much as one turn may, and
// passes on how each side has ended.
func (s *session) turn() {
	if s.over || s.dialing != nil {
		return
	}
	s.carry(&s.client, &s.endpoint)
	s.carry(&s.endpoint, &s.client)
	if s.client.done() && s.endpoint.done() { // closing ends both streams
		s.finish(endedEOF)
		return
	}
	s.passOn(&s.client, &s.endpoint)
	s.passOn(&s.endpoint, &s.client)
	if s.over {
		return
	}
	if s.client.broken && s.endpoint.broken { // nobody is left to read anything
		s.reset(endedReset)
		return
	}
	s.watchEnding()
	if (s.client.more(&s.endpoint) || s.endpoint.more(&s.client)) && !s.isBusy {
		s.isBusy = true
		s.loop.busy = append(s.loop.busy, s)
	}
}

// done says whether the end of the stream from here has come and all before it
// has been written.
func (e *end) done() bool { return e.eof && !e.broken && !e.waiting() }

// passOn tells the side of to how from has ended, after all that came from there:
//
//   - the end of its stream: to's stream ends as well, and the opposite
//     direction goes on (half-close);
//   - a reset or a timeout: to is reset, as soon as its peer has every byte
//     that came ahead of it.
//
// A write to from may have failed before its last bytes were read: they go out first.
func (s *session) passOn(from, to *end) {
	if s.over || !from.eof || from.waiting() && !to.broken || s.flushing != nil {
		return
	}
	switch {
	case from.broken:
		if s.trace != nil {
			s.trace.broken(from == &s.client)
		}
		s.flush(to)
	case !to.finished && !to.broken:
		to.finished = true
		shutdownFD(to.fd, unix.SHUT_WR)
		if s.trace != nil {
			s.trace.closed(from == &s.client, from.carried.Load())
		}
		s.used = s.loop.now
		s.watch()
	}
}

// watchEnding arms the timer where one side has ended and the other still owes it to
// take what came before: it may never read it.
func (s *session) watchEnding() {
	if !s.halfEnded() {
		return
	}
	if next := s.quiet(); next > 0 && (s.timer == 0 || s.due > s.loop.now+next) {
		s.watch()
	}
}

// halfEnded says whether one side sends no more, whether the other knows it or has
// not yet taken all that came before.
func (s *session) halfEnded() bool {
	return s.client.ending || s.client.eof || s.endpoint.ending || s.endpoint.eof
}

// quiet is how long the session may be without traffic; 0 is for ever.
func (s *session) quiet() time.Duration {
	t := s.loop.engine.shared.timeouts
	if s.halfEnded() && (t.idle == 0 || t.halfClose < t.idle) {
		return t.halfClose
	}
	return t.idle
}

// expired is called when the session's timer does.
func (s *session) expired() {
	switch {
	case s.dialing != nil:
		s.dialing.expired()
	case s.flushing != nil:
		s.flushed()
	default:
		if !s.settled {
			s.settle()
		}
		s.checkIdle()
	}
}

// checkIdle ends a session that has been without traffic for too long.
func (s *session) checkIdle() {
	quiet := s.quiet()
	switch {
	case quiet == 0:
	case s.loop.now >= s.used+quiet:
		s.reset(endedTimeout)
	default:
		s.loop.arm(s, s.used+quiet)
	}
}

// flush waits until e's peer has everything that was written, or has taken
// nothing for as long as a half-closed session may be quiet, and then resets e.
func (s *session) flush(e *end) {
	s.flushing = e
	s.left = unsent(e.fd)
	s.patience = s.loop.now + s.loop.engine.shared.timeouts.halfClose
	s.flushed()
}

func (s *session) flushed() {
	quiet := s.loop.engine.shared.timeouts.halfClose
	left := unsent(s.flushing.fd)
	if left < s.left {
		s.patience = s.loop.now + quiet
	}
	s.left = left
	if left == 0 || s.loop.now >= s.patience {
		s.reset(endedReset)
		return
	}
	stalled := s.loop.now - (s.patience - quiet)
	s.loop.arm(s, min(s.loop.now+nextLook(stalled), s.patience))
}

// nextLook is how long a flush waits before it looks again whether its peer, which
// has taken nothing for some time, has taken something: soon at first, and more and
// more seldom, for there may be thousands that never take anything.
func nextLook(stalled time.Duration) time.Duration {
	return min(max(stalled, 5*time.Millisecond), time.Second)
}

// abort resets the session, whatever it is doing.
func (s *session) abort() { s.reset(endedAbort) }

// reset ends the session by resets on both sides.
func (s *session) reset(why string) {
	if s.over {
		return
	}
	resetOnClose(s.client.fd)
	if s.endpoint.fd >= 0 {
		resetOnClose(s.endpoint.fd)
	}
	s.finish(why)
}

// finish closes everything and forgets the session.
func (s *session) finish(why string) {
	l, shared := s.loop, s.loop.engine.shared
	s.over = true
	l.disarm(s)
	if s.dialing != nil {
		s.dialing.close()
		l.unused.dialings.put(s.dialing)
		s.dialing = nil
	}
	for _, e := range [...]*end{&s.client, &s.endpoint} {
		e.drop()
		if e.fd >= 0 {
			l.close(e.fd)
		}
	}
	if s.trace != nil {
		s.traceEnd(why)
	}
	if s.endpointAddr.IsValid() {
		shared.metrics.connectionEnded(why, l.now-s.began)
		if l.engine.debug { // or the message would be made for nobody
			l.engine.log(s, s.endpointAddr, nil, "connection ended: "+why)
		}
	}
	l.mu.Lock()
	delete(l.sessions, s)
	if account := s.listener.account; s.endpointAddr.IsValid() {
		account.up.Add(s.client.carried.Load())
		account.down.Add(s.endpoint.carried.Load())
		account.active.Add(-1)
	}
	l.mu.Unlock()
	shared.budget.give(2)
	l.load.Add(-1)
	shared.limits.release(s.clientAddr.Addr(), s.listener.open)
	l.unused.sessions.put(s) // over until it is begun anew
}

// refuse resets a client that reaches no endpoint.
func (s *session) refuse(why string, err error) {
	s.loop.engine.shared.metrics.refused[why].Inc()
	s.loop.engine.log(s, netip.AddrPort{}, err, "client refused")
	if s.trace != nil {
		s.trace.refused(why)
	}
	s.reset(endedAbort)
}

// traceEnd tells how the session ends. A stream that has ended and was not
// passed on, because closing does that, is told of here.
func (s *session) traceEnd(why string) {
	if why == endedEOF {
		for _, e := range [...]struct{ from, to *end }{{&s.client, &s.endpoint}, {&s.endpoint, &s.client}} {
			if !e.to.finished {
				s.trace.closed(e.from == &s.client, e.from.carried.Load())
			}
		}
	}
	s.trace.ended(why, s.client.carried.Load(), s.endpoint.carried.Load())
}

// status describes the session; its loop calls it.
func (s *session) status(now time.Duration) ConnectionStatus {
	st := ConnectionStatus{
		Service: s.listener.key.PortName.String(), Client: s.clientAddr, Endpoint: s.endpointAddr, State: ConnectionOpen,
		Since: s.loop.engine.start.Add(s.began), Age: Span(now - s.began), Idle: Span(now - s.used),
		Up: s.client.carried.Load(), Down: s.endpoint.carried.Load(),
	}
	switch {
	case s.dialing != nil:
		st.State = ConnectionDialling
	case s.flushing != nil:
		st.State = ConnectionEnding
	case s.client.finished || s.endpoint.finished:
		st.State = ConnectionHalfClosed
	}
	return st
}
