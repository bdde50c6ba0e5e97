package etcd

import (
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// gate is a way to a server that can be closed, and that can swallow what is
// sent, as a network does that drops packets.
type gate struct {
	listener net.Listener
	ended    sync.WaitGroup

	mu     sync.Mutex
	to     string
	shut   bool
	silent bool
	moved  *sync.Cond // silent or conns have changed
	conns  map[net.Conn]bool
}

// newGate leads to an address until the test ends.
func newGate(t testing.TB, to string) *gate {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	g := &gate{listener: l, to: to, conns: map[net.Conn]bool{}}
	g.moved = sync.NewCond(&g.mu)
	g.ended.Go(g.accept)
	t.Cleanup(func() {
		_ = l.Close()
		g.close()
		g.ended.Wait()
	})
	return g
}

func (g *gate) url(scheme string) string { return scheme + "://" + g.listener.Addr().String() }

// close breaks what goes through and lets nothing in.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut, g.silent = true, false
	for c := range g.conns {
		_ = c.Close()
	}
	g.conns = map[net.Conn]bool{}
	g.moved.Broadcast()
}

// open lets connections in, to an address.
func (g *gate) open(to string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut, g.to = false, to
}

// swallow has nothing arrive any more, or lets it on again.
func (g *gate) swallow(silent bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.silent = silent
	g.moved.Broadcast()
}

func (g *gate) accept() {
	for {
		in, err := g.listener.Accept()
		if err != nil {
			return
		}
		g.mu.Lock()
		shut, to := g.shut, g.to
		g.mu.Unlock()
		var out net.Conn
		if !shut {
			out, _ = net.Dial("tcp4", to)
		}
		if out == nil || !g.keep(in, out) {
			_ = in.Close()
			continue
		}
		g.ended.Go(func() { g.copy(out, in) })
		g.ended.Go(func() { g.copy(in, out) })
	}
}

// keep notes a pair of connections; false: the gate was closed meanwhile.
func (g *gate) keep(in, out net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		_ = out.Close()
		return false
	}
	g.conns[in], g.conns[out] = true, true
	return true
}

func (g *gate) copy(to, from net.Conn) {
	defer to.Close()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		g.mu.Lock()
		for g.silent && g.conns[from] {
			g.moved.Wait()
		}
		g.mu.Unlock()
		if _, werr := to.Write(b[:n]); err != nil || werr != nil {
			return
		}
	}
}
