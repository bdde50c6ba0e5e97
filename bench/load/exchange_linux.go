package load

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// exchanger exchanges messages for their echoes: PingPong, Connect, UDP, UDPNew.
type exchanger struct {
	job    Job
	to     unix.Sockaddr
	fresh  bool // a new socket for each message
	stream bool
	epoll  int
	flows  []flow
	start  time.Time
	now    time.Duration // since start
	times  Histogram
	errors uint64
	lost   uint64
	out    []byte
}

// flow is a connection or a UDP socket with one message on its way.
type flow struct {
	fd         int // -1: none
	connecting bool
	began      time.Duration // when its operation did
	sequence   uint64        // the message's number
	got        int           // bytes of the answer
	in         []byte
}

// scanEvery is the time between two looks for flows that wait in vain, and
// lostAfter how long a datagram's answer may take.
const (
	scanEvery = 100 * time.Millisecond
	lostAfter = time.Second
)

func newExchanger(share Job) (*exchanger, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create", err)
	}
	e := &exchanger{
		job: share, to: sockaddr(share.Addr), epoll: epoll,
		fresh: share.Mode == Connect || share.Mode == UDPNew, stream: share.Mode == PingPong || share.Mode == Connect,
		flows: make([]flow, share.Flows), out: make([]byte, share.Size),
	}
	for i := range e.flows {
		e.flows[i] = flow{fd: -1, in: make([]byte, share.Size)}
	}
	return e, nil
}

// open connects flows that stay, and has each exchange a message, so that what
// is measured later is not their beginning.
func (e *exchanger) open() error {
	if e.fresh {
		return nil
	}
	for i := range e.flows {
		f := &e.flows[i]
		fd, err := dial(e.to, e.socketType())
		if err != nil {
			return err
		}
		f.fd = fd
		if _, err := unix.Write(fd, e.out); err != nil {
			return fmt.Errorf("sending a first message: %w", err)
		}
		for got := 0; got < len(f.in); {
			n, err := unix.Read(fd, f.in[got:])
			if err == nil && n == 0 {
				err = io.ErrUnexpectedEOF
			}
			if err != nil {
				return fmt.Errorf("reading the first answer: %w", err)
			}
			got += n
		}
		if err := unix.SetNonblock(fd, true); err != nil {
			return err
		}
		if err := watch(e.epoll, fd, unix.EPOLLIN|unix.EPOLLET, i, 0); err != nil {
			return err
		}
	}
	return nil
}

func (e *exchanger) socketType() int {
	if e.stream {
		return unix.SOCK_STREAM
	}
	return unix.SOCK_DGRAM
}

func (e *exchanger) run() {
	e.start = time.Now()
	e.now = 0
	for i := range e.flows {
		e.begin(i)
	}
	events := make([]unix.EpollEvent, maxEvents)
	scan := scanEvery
	for e.now < e.job.Duration {
		n := wait(e.epoll, events, min(scan, e.job.Duration)-e.now)
		for i := range n {
			e.ready(int(events[i].Fd), events[i].Events)
		}
		if e.now = time.Since(e.start); e.now >= scan {
			e.scan()
			scan = e.now + scanEvery
		}
	}
}

// begin starts an operation at e.now.
func (e *exchanger) begin(i int) {
	f := &e.flows[i]
	f.began = e.now
	if f.fd >= 0 {
		e.send(f)
		return
	}
	// Non-blocking: a connection is there when it can be written to.
	fd, err := unix.Socket(unix.AF_INET, e.socketType()|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		e.errors++
		return
	}
	f.fd = fd
	events := uint32(unix.EPOLLIN | unix.EPOLLET)
	if e.stream {
		f.connecting = true
		events |= unix.EPOLLOUT
	}
	if err := unix.Connect(fd, e.to); err != nil && err != unix.EINPROGRESS {
		e.fail(f)
		return
	}
	if err := watch(e.epoll, fd, events, i, 0); err != nil {
		e.fail(f)
		return
	}
	if !f.connecting {
		e.send(f)
	}
}

func (e *exchanger) send(f *flow) {
	f.sequence++
	f.got = 0
	binary.NativeEndian.PutUint64(e.out, f.sequence)
	if n, _ := unix.Write(f.fd, e.out); n != len(e.out) {
		e.fail(f)
	}
}

func (e *exchanger) ready(i int, events uint32) {
	f := &e.flows[i]
	if f.connecting {
		f.connecting = false
		e.send(f) // fails if the connection has
		if events&unix.EPOLLIN == 0 || f.fd < 0 {
			return
		}
	}
	n, err := unix.Read(f.fd, f.in[f.got:])
	switch {
	case err == unix.EAGAIN:
		return
	case err != nil || n == 0:
		e.fail(f)
		return
	}
	if f.got += n; f.got < len(f.in) {
		return
	}
	if binary.NativeEndian.Uint64(f.in) != f.sequence {
		if f.got = 0; e.stream {
			e.fail(f) // another's answer
		}
		return // a late one
	}
	e.now = time.Since(e.start)
	if e.now >= e.job.Duration {
		return
	}
	if e.fresh {
		e.drop(f)
	}
	e.times.Add(e.now - f.began)
	e.begin(i)
}

// scan gives up what takes too long and begins anew.
func (e *exchanger) scan() {
	for i := range e.flows {
		switch f := &e.flows[i]; {
		case f.fd < 0:
			e.begin(i)
		case !e.stream && e.now-f.began >= lostAfter:
			e.lost++
			if e.fresh {
				e.drop(f)
			}
			e.begin(i)
		case e.stream && e.now-f.began >= patience:
			e.fail(f)
			e.begin(i)
		}
	}
}

// fail counts an error. The flow begins anew at the next scan, and not at once:
// what fails fast would otherwise fail a million times.
func (e *exchanger) fail(f *flow) {
	e.errors++
	e.drop(f)
}

func (e *exchanger) drop(f *flow) {
	if f.fd >= 0 {
		_ = unix.Close(f.fd)
		f.fd, f.connecting = -1, false
	}
}

func (e *exchanger) report(r *Result, times *Histogram) {
	r.Errors += e.errors
	r.Lost += e.lost
	times.Merge(&e.times)
}

func (e *exchanger) close() {
	for i := range e.flows {
		e.drop(&e.flows[i])
	}
	_ = unix.Close(e.epoll)
}
