package load

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// pusher sends as much as its connections take: Bulk. What counts is what has
// arrived: each connection is closed towards the server at the end, and the
// time runs until the server, having read everything, closes too.
type pusher struct {
	job    Job
	epoll  int
	conns  []int // -1: closed
	sent   uint64
	failed uint64
	out    []byte
}

func newPusher(share Job) (*pusher, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create", err)
	}
	return &pusher{job: share, epoll: epoll, out: make([]byte, 256<<10)}, nil
}

func (p *pusher) open() error {
	for i := range p.job.Flows {
		fd, err := dial(sockaddr(p.job.Addr), unix.SOCK_STREAM)
		if err != nil {
			return err
		}
		p.conns = append(p.conns, fd)
		if err := unix.SetNonblock(fd, true); err != nil {
			return err
		}
		if err := watch(p.epoll, fd, unix.EPOLLOUT|unix.EPOLLRDHUP, i, 0); err != nil {
			return err
		}
	}
	return nil
}

func (p *pusher) run() {
	start := time.Now()
	events := make([]unix.EpollEvent, maxEvents)
	for now := time.Duration(0); now < p.job.Duration; now = time.Since(start) {
		for _, event := range events[:wait(p.epoll, events, p.job.Duration-now)] {
			p.push(int(event.Fd), event.Events)
		}
	}
	p.finish(events)
}

// push sends once: the loop looks at the clock and at the others in between.
func (p *pusher) push(i int, events uint32) {
	if p.conns[i] < 0 {
		return
	}
	n, err := unix.Write(p.conns[i], p.out)
	p.sent += uint64(max(n, 0))
	if (err != nil && err != unix.EAGAIN) || events&unix.EPOLLRDHUP != 0 {
		p.fail(i)
	}
}

// finish closes all connections and waits until the server has, too.
func (p *pusher) finish(events []unix.EpollEvent) {
	open := 0
	for i, fd := range p.conns {
		if fd < 0 {
			continue
		}
		event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}
		if unix.Shutdown(fd, unix.SHUT_WR) != nil || unix.EpollCtl(p.epoll, unix.EPOLL_CTL_MOD, fd, &event) != nil {
			p.fail(i)
			continue
		}
		open++
	}
	for deadline := time.Now().Add(2 * patience); open > 0; {
		left := time.Until(deadline)
		for _, event := range events[:wait(p.epoll, events, left)] {
			i := int(event.Fd)
			if n, err := unix.Read(p.conns[i], make([]byte, 1)); n != 0 || err != nil {
				p.fail(i) // it neither answers nor resets
			} else {
				p.drop(i)
			}
			open--
		}
		if left <= 0 && open > 0 {
			p.failed += uint64(open)
			return
		}
	}
}

func (p *pusher) fail(i int) {
	p.failed++
	p.drop(i)
}

func (p *pusher) drop(i int) {
	if p.conns[i] >= 0 {
		_ = unix.Close(p.conns[i])
		p.conns[i] = -1
	}
}

func (p *pusher) report(r *Result, _ *Histogram) {
	r.Bytes += p.sent
	r.Errors += p.failed
}

func (p *pusher) close() {
	for i := range p.conns {
		p.drop(i)
	}
	_ = unix.Close(p.epoll)
}
