//go:build linux && !portable

package proxy

import (
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// chunk is how much is read at once. A side whose peer does not read holds
	// up to that much, beside what the kernel's buffers hold.
	chunk = 64 << 10
	// stepsPerTurn bounds how much one session carries one way before others
	// have their turn: 16 chunks, or pipes.
	stepsPerTurn = 16
)

// heldChunk is what a short write left over.
type heldChunk struct {
	bytes []byte // of room that are still to go
	room  [chunk]byte
}

func (l *loop) held() *heldChunk {
	if c, ok := l.chunks.Get().(*heldChunk); ok {
		return c
	}
	return new(heldChunk)
}

// carry moves bytes from one side to the other until there are no more, or
// they are not taken, or the turn is over.
func (s *session) carry(from, to *end) {
	for range stepsPerTurn {
		switch {
		case !from.more(to):
			return
		case from.waiting():
			from.send(to)
		default:
			from.receive(to)
		}
	}
}

// more says whether there is something to carry now.
func (e *end) more(to *end) bool {
	if to.broken {
		return false // nobody is there to take it
	}
	if e.waiting() {
		return to.writable
	}
	return e.readable && !e.eof
}

// waiting says whether bytes from here have not been written yet.
func (e *end) waiting() bool { return e.held != nil || e.inPipe > 0 }

// receive reads once, and writes what it has read where that goes.
func (e *end) receive(to *end) {
	if e.bulk && e.takePipe() {
		e.receiveByPipe()
		return
	}
	room := &e.session.loop.scratch
	n, err := readFD(e.fd, room[:])
	e.bulk = n == chunk
	if !e.received(n, chunk, err) {
		return
	}
	to.hasten()
	sent, err := writeFD(to.fd, room[:n])
	if !e.sent(to, sent, err) || sent == n {
		return
	}
	e.held = e.session.loop.held()
	e.held.bytes = e.held.room[:copy(e.held.room[:], room[sent:n])]
}

// receiveByPipe moves bytes into the pipe, without copying them.
func (e *end) receiveByPipe() {
	n, err := splice(e.fd, e.pipe.w, pipeSize)
	if err == unix.EAGAIN || err == 0 && n == 0 {
		if e.inPipe == 0 {
			e.givePipe()
		}
		if err != 0 && !e.eager && !e.ended {
			e.readable = false // and what comes next is more of the same
			return
		}
		// Nothing is there, or the end, or an urgent mark, at which splice
		// stops as at either: a read tells.
		e.bulk = false
		return
	}
	if e.received(n, pipeSize, err) {
		e.inPipe += n
		e.bulk = n >= chunk/4 // less is cheaper to copy
	}
	if e.inPipe == 0 {
		e.givePipe()
	}
}

// received notes what a read told: true if it brought bytes.
func (e *end) received(n, most int, err syscall.Errno) bool {
	switch {
	case err == unix.EAGAIN:
		e.readable = false
	case err == unix.EINTR:
	case err != 0:
		e.eof, e.broken = true, true
	case n == 0:
		e.eof = true
	case n < most && e.pipe == nil:
		// The socket is empty. What comes next is an event, and so was the
		// end of the stream, if it was there already.
		e.readable, e.eof = e.eager, e.ended
		return true
	default:
		return true
	}
	return false
}

// send writes what waits.
func (e *end) send(to *end) {
	to.hasten()
	if e.inPipe > 0 {
		n, err := splice(e.pipe.r, to.fd, e.inPipe)
		if e.sent(to, n, err) {
			e.inPipe -= n
			if e.inPipe == 0 && !e.bulk {
				e.givePipe()
			}
		}
		return
	}
	n, err := writeFD(to.fd, e.held.bytes)
	if !e.sent(to, n, err) {
		return
	}
	e.held.bytes = e.held.bytes[n:]
	if len(e.held.bytes) == 0 {
		e.session.loop.chunks.Put(e.held)
		e.held = nil
	}
}

// hasten has the kernel send at once what is about to be written. It would do
// so anyway with the first write: Nagle's algorithm holds back only what comes
// after a small segment that is not acknowledged yet. Connections with a single
// message one way, in many a service most, are spared the call.
func (e *end) hasten() {
	if e.delays && e.written {
		e.delays = false
		_ = setOptionFD(e.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	e.written = true
}

// sent notes what a write told; false if the destination is broken.
func (e *end) sent(to *end, n int, err syscall.Errno) bool {
	if n > 0 {
		e.carried.Add(int64(n))
		e.session.used = e.session.loop.now
	}
	switch err {
	case 0:
	case unix.EAGAIN:
		to.full()
	case unix.EINTR:
	default:
		// Its peer has reset or vanished. What that sent before is read to
		// the end, and goes out, before the other side hears of it.
		to.broken, to.readable, to.eager = true, true, true
		e.drop()
		return false
	}
	return true
}

// drop gives up what waits.
func (e *end) drop() {
	if e.held != nil {
		e.session.loop.chunks.Put(e.held)
		e.held = nil
	}
	if e.pipe != nil {
		if e.inPipe > 0 {
			e.session.loop.pipes.discard(e.pipe) // there are bytes in it
			e.session.loop.engine.shared.budget.give(2)
			e.pipe, e.inPipe = nil, 0
			return
		}
		e.givePipe()
	}
}

// takePipe is true when the side has a pipe.
func (e *end) takePipe() bool {
	if e.pipe != nil {
		return true
	}
	budget := e.session.loop.engine.shared.budget
	if !budget.take(2) {
		return false
	}
	if e.pipe = e.session.loop.pipes.get(); e.pipe == nil {
		budget.give(2)
		return false
	}
	return true
}

func (e *end) givePipe() {
	e.session.loop.pipes.put(e.pipe)
	e.session.loop.engine.shared.budget.give(2)
	e.pipe = nil
}
