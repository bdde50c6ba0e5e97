//go:build linux && !portable

package proxy

import (
	"errors"
	"math"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// udpLoop moves the datagrams of all UDP servers of the process, in one
// goroutine over one epoll instance: a flow has no goroutine, no buffer and
// nothing in Go's own poller, and what a turn of the loop costs is shared by
// all sockets that it finds ready. Of 16 flows that ping and pong it carries
// each for half the CPU time that a goroutine for each flow takes.
//
// The epoll instance is itself a descriptor that Go's poller waits for. So an
// idle loop holds no thread, and a busy one does not keep Go's system monitor
// awake, as one that sleeps in epoll_wait does: that cost as much again.
//
// Sockets are opened and used by the loop and closed by it alone: whoever else
// ends one puts it on a list and wakes the loop. So no descriptor is another
// socket's while the loop still means this one.
type udpLoop struct {
	flows *udpFlows
	epoll *os.File      // nil before the first server
	fd    int           // of epoll
	done  chan struct{} // closed when the loop has ended

	events  [64]unix.EpollEvent
	in      *datagrams    // from clients
	out     *datagrams    // replies, to the clients of one server
	replies int           // in out that wait to be sent
	to      *clientSocket // by which they go

	mu      sync.Mutex
	watched []watched // by descriptor
	serial  int32
	ended   []int // descriptors to close
	parked  bool  // the loop waits, or is about to, for events or to be woken
}

// watched is what the loop does with a descriptor. An event that names an
// earlier serial was for one that has been closed since.
type watched struct {
	serial int32
	server *udpServer // read clients' datagrams for it
	flow   *udpFlow   // or read this one's replies
}

const (
	inBatch  = 32 // datagrams that one server's clients are read of in a turn
	outBatch = 32 // replies sent at once
	perFlow  = 8  // replies that one flow is read of in a turn
	endBatch = 256
)

func newUDPLoop(u *udpFlows) *udpLoop { return &udpLoop{flows: u} }

// start starts the loop where it does not run yet. The caller holds mu.
func (l *udpLoop) start() error {
	if l.epoll != nil {
		return nil
	}
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // this has os.NewFile put it into Go's poller
		return errors.Join(os.NewSyscallError("fcntl", err), unix.Close(fd))
	}
	l.epoll, l.fd, l.done = os.NewFile(uintptr(fd), "epoll of UDP"), fd, make(chan struct{})
	l.in, l.out = newDatagrams(inBatch), newDatagrams(outBatch)
	go l.run()
	return nil
}

// close ends the loop, after what is on its list has been closed, and waits.
func (l *udpLoop) close() {
	l.mu.Lock()
	epoll := l.epoll
	l.mu.Unlock()
	if epoll != nil {
		_ = epoll.Close()
		<-l.done
	}
}

func (l *udpLoop) run() {
	defer close(l.done)
	wait, err := l.epoll.SyscallConn()
	for err == nil {
		if err = wait.Read(l.turns); errors.Is(err, os.ErrDeadlineExceeded) { // it was woken
			err = l.epoll.SetReadDeadline(time.Time{})
		}
	}
	l.reap(math.MaxInt)
}

// turns takes turns until there is nothing to do: then it says false, and is
// called again when there is.
func (l *udpLoop) turns(fd uintptr) bool {
	l.setParked(false)
	for {
		l.reap(endBatch)
		n := epollWait(int(fd), l.events[:], 0)
		if n == 0 && l.setParked(true) {
			return false
		}
		now := l.flows.now()
		for i := range n {
			l.handle(&l.events[i], now)
		}
		l.flush()
	}
}

// setParked notes whether the loop waits. It may not while there are sockets
// to close.
func (l *udpLoop) setParked(parked bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.parked = parked && len(l.ended) == 0
	return l.parked
}

// watch has the loop read from a descriptor from here on.
func (l *udpLoop) watch(fd int, w watched) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.start(); err != nil {
		return err
	}
	for fd >= len(l.watched) {
		l.watched = append(l.watched, make([]watched, max(64, len(l.watched)))...)
	}
	l.serial++
	w.serial = l.serial
	l.watched[fd] = w
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd), Pad: w.serial}
	if err := unix.EpollCtl(l.fd, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		l.watched[fd] = watched{}
		return os.NewSyscallError("epoll_ctl", err)
	}
	return nil
}

// end has the loop close a descriptor that it watches.
func (l *udpLoop) end(fd int) {
	l.mu.Lock()
	l.ended = append(l.ended, fd)
	parked := l.parked
	l.mu.Unlock()
	if parked {
		_ = l.epoll.SetReadDeadline(time.Unix(1, 0)) // wakes it
	}
}

// reap closes some of what has ended, the newest first, and says whether there
// was anything. Only the loop calls it.
func (l *udpLoop) reap(most int) bool {
	l.flush() // the socket that it sends by may be among them
	for n := range most {
		l.mu.Lock()
		last := len(l.ended) - 1
		if last < 0 {
			l.mu.Unlock()
			return n > 0
		}
		fd := l.ended[last]
		l.ended = l.ended[:last]
		w := l.watched[fd]
		l.watched[fd] = watched{}
		l.mu.Unlock()

		if w.flow != nil {
			_ = unix.Close(fd)
			l.flows.limit.release()
		} else {
			_ = w.server.socket.file.Close()
		}
		w.server.open.Done()
	}
	return true
}

// handle does what a ready descriptor is watched for.
func (l *udpLoop) handle(event *unix.EpollEvent, now time.Duration) {
	l.mu.Lock()
	w := l.watched[event.Fd]
	l.mu.Unlock()
	switch {
	case w.serial != event.Pad: // closed in this turn
	case w.flow != nil:
		l.readReplies(w.flow, now)
	case w.server != nil:
		l.readClients(w.server, now)
	}
}

func (l *udpLoop) readClients(s *udpServer, now time.Duration) {
	n, err := l.in.receive(s.socket.fd, 0, inBatch, true, s.socket.anyAddress)
	if err != 0 && err != unix.EAGAIN {
		s.readFailed(err)
	}
	for i := range n {
		s.fromClient(l.in.payload(i), flowKey{client: l.in.sender(i), local: l.in.receivedAt(i)}, now)
	}
}

func (l *udpLoop) readReplies(f *udpFlow, now time.Duration) {
	if l.to != f.server.socket || outBatch-l.replies < perFlow {
		l.flush()
		l.to = f.server.socket
	}
	n, err := l.out.receive(f.socket.fd, l.replies, perFlow, false, false)
	if err != 0 && err != unix.EAGAIN {
		f.server.refused(f)
	}
	if n == 0 {
		return
	}
	if !f.server.replied(f, now) {
		l.flows.counters.dropped[dropLate].Add(uint64(n))
		return
	}
	for i := l.replies; i < l.replies+n; i++ {
		l.out.addressTo(i, f)
	}
	l.replies += n
}

// flush sends the replies that wait.
func (l *udpLoop) flush() {
	again := true
	for sent := 0; sent < l.replies; {
		n, err := l.out.send(l.to.fd, sent, l.replies-sent)
		for i := sent; i < sent+n; i++ {
			size := len(l.out.payload(i))
			l.out.flows[i].down.count(size)
			l.out.flows[i].server.account.answered.count(size)
		}
		sent += n
		switch {
		case err == 0:
			again = true
		case again && whySendFailed(err) == dropFailed: // perhaps what became of an earlier one
			again = false
		default:
			l.to.server.drop(whySendFailed(err))
			sent++
			again = true
		}
	}
	l.replies = 0
}
