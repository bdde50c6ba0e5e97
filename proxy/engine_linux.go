//go:build linux && !portable

package proxy

import (
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

// tcpEngine carries all TCP connections of a Proxier, in one loop for each CPU
// (GoProcessors).
//
// A loop owns its connections from accept to close: no lock is taken and no
// goroutine woken for a byte. It does what its epoll instance, edge-triggered,
// says is ready:
//
//	acceptor.ready -> session.begin (accept_linux.go)
//	   -> session.dial, attempt.ready -> session.connected (dial_linux.go)
//	   -> end.ready -> session.turn -> carry (session_linux.go, carry_linux.go)
//
// What the rest of the program wants of a loop it calls in it (loop.call).
type tcpEngine struct {
	shared *shared
	start  time.Time
	loops  []*loop
	// lingers says whether a loop may keep one of Go's processors while it waits
	// for the next event: others have some then too.
	lingers bool
	debug   bool
}

// GoProcessors is how many processors Go's scheduler (runtime.GOMAXPROCS) should
// have in a program whose work here may use n: one more for each loop, which
// keeps its own while it waits for a moment. A Proxier starts half as many loops.
func GoProcessors(n int) int { return 2 * n }

// loopCount is how many loops there are, where Go has some processors.
func loopCount(processors int) int { return max(1, processors/2) }

// engineDescriptors are those that an engine has open without any connection: each
// loop's epoll instance, its alarm, and the pipes that it keeps for later.
func engineDescriptors() int { return loopCount(runtime.GOMAXPROCS(0)) * (2 + 2*sparePipes) }

func newTCPEngine(s *shared) (*tcpEngine, error) {
	e := &tcpEngine{shared: s, start: time.Now()}
	if l, ok := s.log.(interface{ IsLevelEnabled(logrus.Level) bool }); ok {
		e.debug = l.IsLevelEnabled(logrus.DebugLevel)
	}
	processors := runtime.GOMAXPROCS(0)
	e.lingers = processors > 1
	for range loopCount(processors) {
		l, err := newLoop(e)
		if err != nil {
			e.close()
			return nil, fmt.Errorf("start a loop: %w", err)
		}
		e.loops = append(e.loops, l)
	}
	return e, nil
}

// inLoops runs f in every loop, and returns when each has. They are called all at
// once: one after the other, the start of 10,000 listeners would take longer the
// more processors there are.
func (e *tcpEngine) inLoops(f func(int, *loop)) {
	var all sync.WaitGroup
	for i, l := range e.loops {
		all.Go(func() { l.call(func() { f(i, l) }) })
	}
	all.Wait()
}

// now is the time on the engine's own, monotonic clock.
func (e *tcpEngine) now() time.Duration { return time.Since(e.start) }

// open is the number of connections, those that are still being dialled too.
func (e *tcpEngine) open() int { return int(e.shared.limits.all.open.Load()) }

// count is the number of connections to each endpoint.
func (e *tcpEngine) count() endpointCounts {
	counts := make(endpointCounts)
	for _, l := range e.loops {
		l.mu.Lock()
		for s := range l.sessions {
			if s.endpointAddr.IsValid() {
				counts.add(s.listener.key, s.endpointAddr)
			}
		}
		l.mu.Unlock()
	}
	return counts
}

// list describes connections, most of them at most. The loops do it themselves,
// so that it is true of one moment of each.
func (e *tcpEngine) list(most int) (list []ConnectionStatus) {
	for _, l := range e.loops {
		l.call(func() {
			now := e.now()
			for s := range l.sessions {
				if len(list) >= most {
					return
				}
				list = append(list, s.status(now))
			}
		})
	}
	return list
}

// bytes are those that connections have carried, open ones and ended ones. No
// connection ends meanwhile, so that none is missed or counted twice.
func (e *tcpEngine) bytes(of []*account) bytesOf {
	sums := make(bytesOf, len(of))
	for _, l := range e.loops {
		l.mu.Lock()
		defer l.mu.Unlock() //nolint:gocritic // all of them are held to the end, on purpose
	}
	sums.addEnded(of)
	for _, l := range e.loops {
		for s := range l.sessions {
			if s.endpointAddr.IsValid() {
				sums.add(s.listener.account, s.client.carried.Load(), s.endpoint.carried.Load())
			}
		}
	}
	return sums
}

// close resets every connection and returns when the loops have ended.
// Listeners must be closed before.
func (e *tcpEngine) close() {
	for _, l := range e.loops {
		l.call(l.stop)
		<-l.done
	}
}

// loopFor is the loop for a connection that l accepted: l, unless another has
// far fewer to carry. The kernel wakes whom it will for a connection, often
// the same loop each time.
func (e *tcpEngine) loopFor(l *loop) *loop {
	best := l
	for _, other := range e.loops {
		if n := other.load.Load(); n+1 < best.load.Load()*7/8 {
			best = other
		}
	}
	return best
}

// log describes a session's end for those who debug, and costs nothing else.
func (e *tcpEngine) log(s *session, endpoint netip.AddrPort, err error, what string) {
	if !e.debug {
		return
	}
	log := e.shared.log.WithFields(logrus.Fields{"service": s.listener.key, "client": s.clientAddr, "endpoint": endpoint})
	if err != nil {
		log = log.WithError(err)
	}
	log.Debug(what)
}
