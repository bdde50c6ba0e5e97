//go:build linux && !portable

package proxy

import (
	"container/heap"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// loop is one event loop of the TCP engine: a goroutine over an epoll instance
// of its own. What has no lock beside it is the loop's own.
//
// While events come quickly it waits for them past Go's scheduler, as a loop in
// C would (wait). A loop with nothing to do sleeps in a system call that the
// scheduler knows of.
type loop struct {
	engine *tcpEngine
	epoll  int
	alarm  int // eventfd: there are calls
	done   chan struct{}

	now     time.Duration // when the loop last woke, on the engine's clock
	brisk   bool          // events come quickly
	again   bool          // there may be events that are not announced once more
	events  [maxEvents]unix.EpollEvent
	watched []watch          // by descriptor
	own     map[int]*ownDial // the dials among them that ownDials knows
	serial  int32
	timers  timers
	busy    []*session  // had more to do than one turn allows
	wasBusy []*session  // room for the next busy
	arrived []arrival   // room for the next arrivals
	paused  []*acceptor // wait for descriptors, until resume
	resume  time.Duration
	scratch [chunk]byte // what is read goes on from here at once
	chunks  sync.Pool   // of *heldChunk
	pipes   pipePool
	unused  struct {
		sessions freelist[session]
		dialings freelist[dialing]
	}
	stopped bool

	load atomic.Int64 // sessions, for the choice of a loop

	mu       sync.Mutex
	ended    bool // alarm is closed, and may be somebody else's number
	calls    []func()
	arrivals []arrival
	sessions map[*session]struct{}
}

// arrival is a connection that another loop has accepted for this one.
type arrival struct {
	listener *tcpListener
	fd       int
	client   netip.AddrPort
}

// source is what a descriptor is watched for.
type source interface{ ready(events uint32) }

// watch is a watched descriptor. An event that carries an earlier serial was
// for one that has been closed since, in the same batch.
type watch struct {
	serial int32
	source source
}

const (
	// maxEvents is how many descriptors one wake-up handles.
	maxEvents = 128
	// acceptRetry is how long accepting pauses when descriptors are used up.
	acceptRetry = 20 * time.Millisecond

	// edge is what sessions are told, once each time it becomes so. Urgent
	// data (EPOLLPRI) is none here, but reads stop at its mark.
	edge = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLPRI | unix.EPOLLRDHUP | unix.EPOLLET
	// eagerEvents say that there is more than a short read shows.
	eagerEvents = unix.EPOLLPRI | unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR
)

// freelist are structs to use again. They belong to one loop.
type freelist[T any] []*T

func (s *freelist[T]) get() *T {
	last := len(*s) - 1
	if last < 0 {
		return new(T)
	}
	t := (*s)[last]
	*s = (*s)[:last]
	return t
}

func (s *freelist[T]) put(t *T) {
	const most = 256
	if len(*s) < most {
		*s = append(*s, t)
	}
}

func newLoop(e *tcpEngine) (*loop, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create", err)
	}
	alarm, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, errors.Join(os.NewSyscallError("eventfd", err), unix.Close(epoll))
	}
	l := &loop{engine: e, epoll: epoll, alarm: alarm, done: make(chan struct{}), own: make(map[int]*ownDial), sessions: make(map[*session]struct{})}
	if err := l.watch(alarm, alarmClock{l}, unix.EPOLLIN); err != nil {
		return nil, errors.Join(err, unix.Close(alarm), unix.Close(epoll))
	}
	go l.run()
	return l, nil
}

func (l *loop) run() {
	defer close(l.done)
	for !l.stopped {
		n := l.wait()
		l.now = l.engine.now()
		l.again = n == maxEvents
		for i := range n {
			e := &l.events[i]
			if w := l.watched[e.Fd]; w.serial == e.Pad && w.source != nil {
				w.source.ready(e.Events)
			}
		}
		l.turnBusy()
		l.expire()
	}
	l.pipes.close()
	l.mu.Lock()
	l.ended = true
	_ = unix.Close(l.alarm)
	l.mu.Unlock()
	_ = unix.Close(l.epoll)
}

// linger is how long a loop waits for the next event past the scheduler, and so
// how soon events must come for that.
const linger = 20 * time.Millisecond

// wait is how many events there are, when there are some or something is due.
//
// A call that the scheduler knows of costs more than a message does: it sees a
// processor (its P) that has gone into the kernel, wakes its monitor to watch
// over it, and gives it to somebody else. So while events come quickly the loop
// keeps the processor and waits past the scheduler, for a moment at a time;
// GoProcessors has one for each loop that nobody else needs. The collector and
// the monitor can still stop a loop: their signal ends the wait.
func (l *loop) wait() int {
	if l.again || len(l.busy) > 0 {
		if !l.engine.lingers {
			runtime.Gosched() // work without end must not keep other goroutines from theirs
		}
		return epollWait(l.epoll, l.events[:], 0)
	}
	patience := time.Duration(-1)
	if due, ok := l.due(); ok {
		patience = max(0, due-l.engine.now())
	}
	if l.brisk {
		moment := linger
		if patience >= 0 {
			moment = min(linger, patience)
		}
		if n := epollWait(l.epoll, l.events[:], moment); n > 0 || moment == patience {
			return n
		}
	}
	began := time.Now()
	n := epollSleep(l.epoll, l.events[:], patience)
	l.brisk = l.engine.lingers && time.Since(began) < linger
	return n
}

// due is when the next thing is to be done, if there is one.
func (l *loop) due() (time.Duration, bool) {
	switch timed, paused := len(l.timers) > 0, len(l.paused) > 0; {
	case timed && paused:
		return min(l.timers[0].due, l.resume), true
	case timed:
		return l.timers[0].due, true
	case paused:
		return l.resume, true
	}
	return 0, false
}

// watch has source told of a descriptor's events.
func (l *loop) watch(fd int, s source, events uint32) error {
	for fd >= len(l.watched) {
		l.watched = append(l.watched, make([]watch, max(64, len(l.watched)))...)
	}
	l.serial++
	l.watched[fd] = watch{serial: l.serial, source: s}
	event := unix.EpollEvent{Events: events, Fd: int32(fd), Pad: l.serial}
	if err := epollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &event); err != 0 {
		l.watched[fd] = watch{}
		return os.NewSyscallError("epoll_ctl", err)
	}
	return nil
}

func (l *loop) watches(fd int) bool { return fd < len(l.watched) && l.watched[fd].source != nil }

// rewatch has the source of a descriptor told of other events. It cannot fail
// for one that is watched.
func (l *loop) rewatch(fd int, events uint32) {
	event := unix.EpollEvent{Events: events, Fd: int32(fd), Pad: l.watched[fd].serial}
	_ = epollCtl(l.epoll, unix.EPOLL_CTL_MOD, fd, &event)
}

// unwatch is for descriptors that stay open.
func (l *loop) unwatch(fd int) {
	if l.watches(fd) {
		l.watched[fd] = watch{}
		_ = epollCtl(l.epoll, unix.EPOLL_CTL_DEL, fd, nil)
	}
}

// close closes a descriptor, watched or not.
func (l *loop) close(fd int) {
	if fd < len(l.watched) {
		l.watched[fd] = watch{}
	}
	if d := l.own[fd]; d != nil {
		delete(l.own, fd)
		defer l.engine.shared.own.remove(d) // when it is closed, and can come back no more
	}
	closeFD(fd)
}

// post has f run in the loop, soon, unless that has ended.
func (l *loop) post(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.ring()
		l.calls = append(l.calls, f)
	}
}

// handOver has a connection begin in the loop, soon. The loop has not ended
// while there are listeners.
func (l *loop) handOver(a arrival) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ring()
	l.arrivals = append(l.arrivals, a)
}

// ring wakes the loop, where nothing has that waits already. Its caller holds
// mu, so that the alarm is not closed meanwhile.
func (l *loop) ring() {
	if len(l.calls)+len(l.arrivals) > 0 {
		return
	}
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = writeFD(l.alarm, one[:])
}

// call has f run in the loop and returns when it has, or when the loop has
// ended. It must not be called in one.
func (l *loop) call(f func()) {
	done := make(chan struct{})
	l.post(func() { f(); close(done) })
	select {
	case <-done:
	case <-l.done:
	}
}

// alarmClock runs the calls that were posted, and begins what was handed over.
type alarmClock struct{ *loop }

func (l alarmClock) ready(uint32) {
	var buf [8]byte
	_, _ = readFD(l.alarm, buf[:])
	l.mu.Lock()
	calls, arrivals := l.calls, l.arrivals
	l.calls, l.arrivals = nil, l.arrived[:0]
	l.mu.Unlock()
	l.arrived = arrivals
	for _, a := range arrivals {
		l.begin(a.listener, a.fd, a.client)
	}
	for _, f := range calls {
		f()
	}
}

// stop resets every session and ends the loop.
func (l *loop) stop() {
	for s := range l.sessions {
		s.abort()
	}
	l.stopped = true
}

// turnBusy gives those that were cut short another turn, and new events a
// chance before the next.
func (l *loop) turnBusy() {
	busy := l.busy
	l.busy, l.wasBusy = l.wasBusy[:0], busy
	for _, s := range busy {
		s.isBusy = false
		s.turn()
	}
}

// expire does what is due.
func (l *loop) expire() {
	for len(l.timers) > 0 && l.timers[0].due <= l.now {
		s := l.timers[0]
		l.disarm(s)
		s.expired()
	}
	if l.resume <= l.now {
		paused := l.paused
		l.paused = nil
		for _, a := range paused {
			a.resume()
		}
	}
}

// arm makes the session's timer expire at due, instead of when it would have.
func (l *loop) arm(s *session, due time.Duration) {
	s.due = due
	if s.timer > 0 {
		heap.Fix(&l.timers, s.timer-1)
	} else {
		heap.Push(&l.timers, s)
	}
}

func (l *loop) disarm(s *session) {
	if s.timer > 0 {
		heap.Remove(&l.timers, s.timer-1)
	}
}

// timers are the sessions that wait for a moment, the next first.
type timers []*session

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].due < t[j].due }
func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].timer, t[j].timer = i+1, j+1
}

// Push is for package heap.
func (t *timers) Push(x any) {
	s := x.(*session)
	*t = append(*t, s)
	s.timer = len(*t)
}

// Pop is for package heap.
func (t *timers) Pop() any {
	last := len(*t) - 1
	s := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	s.timer = 0
	return s
}
