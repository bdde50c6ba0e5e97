//go:build linux && !portable

package proxy

import "golang.org/x/sys/unix"

const (
	// pipeSize is how much goes through a pipe at once: what any user may ask
	// for, /proc/sys/fs/pipe-max-size.
	pipeSize = 1 << 20
	// sparePipes is how many each loop keeps for later.
	sparePipes = 8
)

// kernelPipe is where splice(2) puts bytes between two sockets.
type kernelPipe struct{ r, w int }

// pipePool keeps empty pipes. It belongs to one loop.
type pipePool struct{ spare []*kernelPipe }

// get is an empty pipe, nil where the system has none to give.
func (p *pipePool) get() *kernelPipe {
	if last := len(p.spare) - 1; last >= 0 {
		pipe := p.spare[last]
		p.spare = p.spare[:last]
		return pipe
	}
	var fds [2]int
	if unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK) != nil {
		return nil
	}
	// Beyond a limit for each user (pipe-user-pages-soft) it keeps its 64 KiB.
	_, _ = unix.FcntlInt(uintptr(fds[1]), unix.F_SETPIPE_SZ, pipeSize)
	return &kernelPipe{r: fds[0], w: fds[1]}
}

// put takes back an empty pipe.
func (p *pipePool) put(pipe *kernelPipe) {
	if len(p.spare) < sparePipes {
		p.spare = append(p.spare, pipe)
		return
	}
	p.discard(pipe)
}

// discard closes a pipe.
func (p *pipePool) discard(pipe *kernelPipe) {
	_ = unix.Close(pipe.r)
	_ = unix.Close(pipe.w)
}

func (p *pipePool) close() {
	for _, pipe := range p.spare {
		p.discard(pipe)
	}
	p.spare = nil
}
