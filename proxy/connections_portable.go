//go:build !linux || portable

package proxy

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// GoProcessors is how many processors Go's scheduler (runtime.GOMAXPROCS) should
// have in a program whose work here may use n.
func GoProcessors(n int) int { return n }

// engineDescriptors: without connections it has none open.
func engineDescriptors() int { return 0 }

// connection is one TCP connection, as status shows it.
type connection struct {
	key     service.Key
	account *account
	client  netip.AddrPort
	since   time.Time

	// Set when connected, under the engine's mu.
	endpoint netip.AddrPort
	relay    *relay
}

func (c *connection) status(now time.Time) ConnectionStatus {
	st := ConnectionStatus{
		Service: c.key.PortName.String(), Client: c.client, Endpoint: c.endpoint, State: ConnectionDialling,
		Since: c.since, Age: Span(now.Sub(c.since)), Idle: Span(now.Sub(c.since)),
	}
	if c.relay == nil {
		return st
	}
	st.State = ConnectionOpen
	if c.relay.closing.Load() {
		st.State = ConnectionHalfClosed
	}
	st.Up, st.Down = c.relay.up.bytes.Load(), c.relay.down.bytes.Load()
	if moved := max(c.relay.up.moved.Load(), c.relay.down.moved.Load()); moved > 0 {
		st.Idle = Span(now.Sub(time.Unix(0, moved)))
	}
	return st
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
	c.dialer = &dialer{tcpTimeouts: s.timeouts, metrics: s.metrics, own: s.own, under: &dialsUnderWay{own: s.own, begun: make(map[uint64]struct{})}}
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
	defer c.mu.Unlock()
	c.all[n] = struct{}{}
}

// connected is told which endpoint a connection is relayed to.
func (c *tcpEngine) connected(n *connection, endpoint netip.AddrPort, r *relay) {
	c.mu.Lock()
	n.endpoint, n.relay = endpoint, r
	c.mu.Unlock()
	if c.ctx.Err() != nil { // abortAll came first
		r.abort()
	}
}

func (c *tcpEngine) remove(n *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, n)
	if n.relay != nil {
		n.account.up.Add(n.relay.up.bytes.Load())
		n.account.down.Add(n.relay.down.bytes.Load())
	}
}

// bytes are those that connections have carried, open ones and ended ones. No
// connection ends meanwhile, so that none is missed or counted twice.
func (c *tcpEngine) bytes(of []*account) bytesOf {
	sums := make(bytesOf, len(of))
	c.mu.Lock()
	defer c.mu.Unlock()
	sums.addEnded(of)
	for n := range c.all {
		if n.relay != nil {
			sums.add(n.account, n.relay.up.bytes.Load(), n.relay.down.bytes.Load())
		}
	}
	return sums
}

// abortAll resets every connection, and those that are still being dialled.
func (c *tcpEngine) abortAll() {
	c.cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := range c.all {
		if n.relay != nil {
			n.relay.abort()
		}
	}
}

// count is the number of connections to each endpoint.
func (c *tcpEngine) count() endpointCounts {
	counts := make(endpointCounts)
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := range c.all {
		if n.relay != nil {
			counts.add(n.key, n.endpoint)
		}
	}
	return counts
}

// list describes connections, most of them at most.
func (c *tcpEngine) list(most int) (list []ConnectionStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for n := range c.all {
		if len(list) >= most {
			break
		}
		list = append(list, n.status(now))
	}
	return list
}
