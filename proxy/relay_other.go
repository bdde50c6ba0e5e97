//go:build !linux || portable

package proxy

import "fmt"

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
