//go:build !linux || portable

package proxy

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// connection is one relayed TCP connection, as status shows it.
type connection struct {
	key      service.Key
	client   netip.AddrPort
	endpoint netip.AddrPort
	since    time.Time
	relay    *relay
}

// tcpEngine are all TCP connections of a Proxier, whatever became of the
// listener that accepted them. It waits for the goroutines of each.
type tcpEngine struct {
	shared *shared
	dialer *dialer
	ctx    context.Context // of dials; ends when connections are aborted
	cancel context.CancelFunc
	wg     sync.WaitGroup // of goroutines: connections being dialled or relayed

	mu  sync.Mutex
	all map[*connection]struct{}
}

func newTCPEngine(s *shared) (*tcpEngine, error) {
	c := &tcpEngine{shared: s, all: make(map[*connection]struct{})}
	c.dialer = &dialer{tcpTimeouts: s.timeouts, metrics: s.metrics}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// open is the number of connections, those that are still being dialled too.
func (c *tcpEngine) open() int { return int(c.shared.limits.all.open.Load()) }

// close ends every connection and returns when all have ended.
func (c *tcpEngine) close() {
	c.abortAll()
	c.wg.Wait()
}

// start runs a connection's goroutine.
func (c *tcpEngine) start(handle func()) {
	c.wg.Go(handle)
}

func (c *tcpEngine) add(n *connection) {
	c.mu.Lock()
	c.all[n] = struct{}{}
	c.mu.Unlock()
	if c.ctx.Err() != nil { // abortAll came first
		n.relay.abort()
	}
}

func (c *tcpEngine) remove(n *connection) {
	c.mu.Lock()
	delete(c.all, n)
	c.mu.Unlock()
}

// abortAll resets every connection, and those that are still being dialled.
func (c *tcpEngine) abortAll() {
	c.cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := range c.all {
		n.relay.abort()
	}
}

// count is the number of connections to each endpoint.
func (c *tcpEngine) count() endpointCounts {
	counts := make(endpointCounts)
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := range c.all {
		counts.add(n.key, n.endpoint)
	}
	return counts
}
