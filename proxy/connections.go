package proxy

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// shared is what all listeners of a Proxier use.
type shared struct {
	log       logrus.FieldLogger
	warn      *limiter
	metrics   *Metrics
	budget    *budget
	dialer    *dialer
	conns     *connections
	halfClose time.Duration
	idle      time.Duration

	udp     *udpFlows
	udpIdle time.Duration
}

// connection is one relayed TCP connection, as status shows it.
type connection struct {
	key      service.Key
	client   netip.AddrPort
	endpoint netip.AddrPort
	since    time.Time
	relay    *relay
}

// connections are all TCP connections of a Proxier, whatever became of the
// listener that accepted them. It waits for the goroutine of each.
type connections struct {
	ctx    context.Context // of dials; ends when connections are aborted
	cancel context.CancelFunc
	wg     sync.WaitGroup
	open   atomic.Int64 // goroutines that wg waits for: connections being dialled or relayed

	mu  sync.Mutex
	all map[*connection]struct{}
}

func newConnections() *connections {
	c := &connections{all: make(map[*connection]struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// start runs a connection's goroutine.
func (c *connections) start(handle func()) {
	c.wg.Add(1)
	c.open.Add(1)
	go func() {
		defer c.wg.Done()
		defer c.open.Add(-1)
		handle()
	}()
}

func (c *connections) add(n *connection) {
	c.mu.Lock()
	c.all[n] = struct{}{}
	c.mu.Unlock()
	if c.ctx.Err() != nil { // abortAll came first
		n.relay.abort()
	}
}

func (c *connections) remove(n *connection) {
	c.mu.Lock()
	delete(c.all, n)
	c.mu.Unlock()
}

// abortAll resets every connection, and those that are still being dialled.
func (c *connections) abortAll() {
	c.cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := range c.all {
		n.relay.abort()
	}
}

// count is the number of connections to each endpoint of each service port.
func (c *connections) count() map[service.Key]map[netip.AddrPort]int {
	counts := make(map[service.Key]map[netip.AddrPort]int)
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := range c.all {
		if counts[n.key] == nil {
			counts[n.key] = make(map[netip.AddrPort]int)
		}
		counts[n.key][n.endpoint]++
	}
	return counts
}

// limiter lets a message through once in a while and counts what it held back.
type limiter struct {
	mu    sync.Mutex
	every time.Duration
	last  map[string]time.Time
	held  map[string]int
}

func newLimiter(every time.Duration) *limiter {
	return &limiter{every: every, last: make(map[string]time.Time), held: make(map[string]int)}
}

// limited logs a warning, unless the same one was logged a moment ago.
func (l *limiter) limited(log logrus.FieldLogger, message string) {
	l.mu.Lock()
	if now := time.Now(); now.Sub(l.last[message]) < l.every {
		l.held[message]++
		l.mu.Unlock()
		return
	}
	held := l.held[message]
	l.last[message], l.held[message] = time.Now(), 0
	l.mu.Unlock()
	if held > 0 {
		log = log.WithField("held_back", held)
	}
	log.Warn(message)
}
