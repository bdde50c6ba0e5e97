//go:build linux && !portable

package proxy

import (
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// chunk is how much is read at once.
const chunk = 64 << 10

var chunks = sync.Pool{New: func() any { return new([chunk]byte) }}

// mover reads without holding a buffer while there is nothing to read: an idle
// connection costs none.
type mover struct {
	raw   syscall.RawConn
	read  func(fd uintptr) bool // readReady, bound once
	chunk *[chunk]byte          // what readReady read into
	n     int
	err   error
}

// move carries what there is to read, once, and returns how much that was.
func (p *pipe) move() (int64, error) {
	if p.raw == nil {
		raw, err := p.from.conn.SyscallConn()
		if err != nil {
			return 0, err
		}
		p.raw, p.read = raw, p.readReady
	}
	if err := p.raw.Read(p.read); err != nil {
		return 0, err
	}
	if p.chunk == nil {
		return 0, os.NewSyscallError("read", p.err)
	}
	defer func() {
		chunks.Put(p.chunk)
		p.chunk = nil
	}()
	if p.n == 0 {
		return 0, io.EOF
	}
	n, err := p.to.conn.Write(p.chunk[:p.n])
	if err != nil {
		return int64(n), fmt.Errorf("%w: %w", errWrite, err)
	}
	return int64(n), nil
}

// readReady reads from fd into a fresh chunk and is false where it must wait.
func (m *mover) readReady(fd uintptr) bool {
	m.chunk = chunks.Get().(*[chunk]byte)
	for {
		m.n, m.err = unix.Read(int(fd), m.chunk[:])
		if m.err != unix.EINTR { //nolint:errorlint // a bare errno, on the hot path
			break
		}
	}
	if m.err == nil {
		return true
	}
	chunks.Put(m.chunk)
	m.chunk = nil
	return m.err != unix.EAGAIN //nolint:errorlint // see above
}
