//go:build !linux || portable

package proxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// relay carries bytes between a client and an endpoint until both directions
// have ended. It owns both connections from newRelay on and closes them.
//
// Each direction is a goroutine of its own that reads, writes, and at the end
// of its source ends the other side's stream too, while the opposite direction
// goes on (half-close). A reset is passed on as an end: a reset would throw
// away what is still on its way to the other side, and no portable call tells
// when nothing is. A write that fails says that its destination is broken;
// that is left to the direction that reads from there, since bytes that
// arrived before the break go out first.
type relay struct {
	up   pipe // client to endpoint
	down pipe // endpoint to client

	halfClose time.Duration // a half-closed relay without traffic ends after it
	idle      time.Duration // a relay without traffic ends after it; 0: never

	watch   *time.Timer // runs checkIdle
	watched int64       // bytes carried when watch was last armed; the timer's own
	closing atomic.Bool // one direction has ended
	trace   *trace      // nil for nearly all
	ended   atomic.Int32
}

// peer is one end of the relay.
type peer struct {
	conn   *net.TCPConn
	broken atomic.Bool // reset, timed out or aborted; set by whichever direction meets it first
}

// pipe is one direction.
type pipe struct {
	from, to *peer
	bytes    atomic.Int64
	moved    atomic.Int64 // when some last passed, Unix time in nanoseconds
	mover                 // how bytes are moved on this system
}

const (
	running int32 = iota
	timedOut
	aborted
)

func newRelay(client, endpoint *net.TCPConn, halfClose, idle time.Duration) *relay {
	c, e := &peer{conn: client}, &peer{conn: endpoint}
	r := &relay{up: pipe{from: c, to: e}, down: pipe{from: e, to: c}, halfClose: halfClose, idle: idle}
	r.watch = time.AfterFunc(time.Hour, r.checkIdle)
	r.watch.Stop()
	return r
}

// run carries bytes until both directions have ended and says why they did.
func (r *relay) run() string {
	if r.idle > 0 {
		r.watch.Reset(r.idle)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.carryDown()
	}()
	r.carryUp()
	<-done
	r.watch.Stop()
	_ = r.up.from.conn.Close()
	_ = r.up.to.conn.Close()
	switch {
	case r.ended.Load() == timedOut:
		return endedTimeout
	case r.ended.Load() == aborted:
		return endedAbort
	case r.up.from.broken.Load() || r.up.to.broken.Load():
		return endedReset
	}
	return endedEOF
}

// carryUp and carryDown have names of their own so that a stack dump tells them apart.
func (r *relay) carryUp()   { r.carry(&r.up) }
func (r *relay) carryDown() { r.carry(&r.down) }

func (r *relay) carry(p *pipe) {
	err := p.copy()
	if errors.Is(err, errWrite) {
		p.to.broken.Store(true)
		return // the opposite direction reads from there and ends both
	}
	if r.ended.Load() != running {
		return // whoever ended it resets both
	}
	if err != nil {
		p.from.broken.Store(true)
	}
	if r.trace != nil {
		if err != nil {
			r.trace.broken(p == &r.up)
		} else {
			r.trace.closed(p == &r.up, p.bytes.Load())
		}
	}
	_ = p.to.conn.CloseWrite()
	if r.closing.CompareAndSwap(false, true) && r.ended.Load() == running {
		r.watch.Reset(r.quiet())
	}
}

// quiet is how long the relay may be without traffic now; 0 means for ever.
func (r *relay) quiet() time.Duration {
	if r.closing.Load() && (r.idle == 0 || r.halfClose < r.idle) {
		return r.halfClose
	}
	return r.idle
}

// checkIdle ends a relay that carried nothing since it was last called.
func (r *relay) checkIdle() {
	n := r.up.bytes.Load() + r.down.bytes.Load()
	if n == r.watched {
		r.end(timedOut)
		return
	}
	r.watched = n
	r.watch.Reset(r.quiet())
}

// abort ends the relay at once; run returns soon after. It may be called at any time.
func (r *relay) abort() { r.end(aborted) }

func (r *relay) end(why int32) {
	if r.ended.CompareAndSwap(running, why) {
		r.up.from.reset()
		r.up.to.reset()
	}
}

// errWrite marks a failure of a pipe's destination, not of its source.
var errWrite = errors.New("write")

// copy carries bytes until the source ends (nil), the source breaks, or the
// destination does (errWrite).
func (p *pipe) copy() error {
	for {
		n, err := p.move()
		p.bytes.Add(n)
		p.moved.Store(time.Now().UnixNano())
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// reset closes the connection with RST instead of FIN.
func (p *peer) reset() {
	p.broken.Store(true)
	_ = p.conn.SetLinger(0)
	_ = p.conn.Close()
}

// chunk is how much is read at once. Each direction of a connection has a
// buffer of that size for as long as it lives.
const chunk = 16 << 10

type mover struct{ chunk []byte }

// move carries what there is to read, once, and returns how much that was.
func (p *pipe) move() (int64, error) {
	if p.chunk == nil {
		p.chunk = make([]byte, chunk)
	}
	n, err := p.from.conn.Read(p.chunk)
	if n == 0 {
		return 0, err
	}
	written, werr := p.to.conn.Write(p.chunk[:n])
	if werr != nil {
		return int64(written), fmt.Errorf("%w: %w", errWrite, werr)
	}
	return int64(written), err
}
