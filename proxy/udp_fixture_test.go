package proxy

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logrustest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/loadbalancer"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// udpPath is a server with its own flows, balancer and log.
type udpPath struct {
	t     testing.TB
	flows *udpFlows
	limit *countedLimit
	group *loadbalancer.Group
	log   *logrustest.Hook

	*udpServer
	addr netip.AddrPort // that clients send to
}

type udpOptions struct {
	listen netip.AddrPort // default: a loopback address of the test's own
	idle   time.Duration  // default: longer than any test
	limit  int            // flows; default: many
	mark   uint32
}

// serveUDP serves clients with these endpoints until the test ends. Then it
// checks that nothing is left.
func serveUDP(t testing.TB, o udpOptions, endpoints ...netip.AddrPort) *udpPath {
	t.Helper()
	if !o.listen.IsValid() {
		o.listen = netip.AddrPortFrom(ownAddr(), 0)
	}
	if o.idle == 0 {
		o.idle = time.Hour
	}
	if o.limit == 0 {
		o.limit = 10000
	}
	log, hook := logrustest.NewNullLogger()
	p := &udpPath{t: t, limit: &countedLimit{}, log: hook, group: loadbalancer.NewGroup(time.Now)}
	p.limit.free.Store(int64(o.limit))
	p.setEndpoints(endpoints...)
	p.flows = newUDPFlows(udpFlowsConfig{limit: p.limit, senderOf: func(_, _ netip.Addr) sender { return sender{mark: o.mark} }, counters: &udpCounters{}, warn: newLimiter(time.Hour)})
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(o.listen))
	require.NoError(t, err)
	p.addr = netip.AddrPortFrom(o.listen.Addr(), uint16(conn.LocalAddr().(*net.UDPAddr).Port))
	p.udpServer, err = newUDPServer(udpConfig{
		flows: p.flows, conn: conn, balancer: p.group, account: new(account), idle: o.idle, log: log.WithFields(logrus.Fields{"service": t.Name()}),
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		p.close()
		p.flows.close()
		require.Zero(t, p.limit.taken.Load(), "every descriptor is given back")
		require.Zero(t, p.counters().active.Load())
	})
	return p
}

func (p *udpPath) counters() *udpCounters { return p.flows.counters }

func (p *udpPath) dropped(why dropReason) uint64 { return p.counters().dropped[why].Load() }

// setEndpoints is what a Proxier does when endpoints change.
func (p *udpPath) setEndpoints(endpoints ...netip.AddrPort) {
	list := make([]service.Endpoint, len(endpoints))
	for i, e := range endpoints {
		list[i].Addr = e
	}
	p.group.Update(list, 0)
	if p.udpServer != nil {
		p.endpointsChanged(func(_ netip.Addr, e netip.AddrPort) bool { return slices.Contains(endpoints, e) })
	}
}

// endFlows ends them all, and the server goes on.
func (p *udpPath) endFlows() {
	p.flows.mu.Lock()
	defer p.flows.mu.Unlock()
	for f := range p.udpServer.group.byUse.all {
		p.end(f, endedServer)
	}
}

func (p *udpPath) eventually(f func() bool, why ...any) {
	p.t.Helper()
	require.Eventually(p.t, f, patience, time.Millisecond, why...)
}

// countedLimit is a flowLimit that a test can change.
type countedLimit struct{ free, taken atomic.Int64 }

func (l *countedLimit) tryAcquire() bool {
	if l.free.Add(-1) < 0 {
		l.free.Add(1)
		return false
	}
	l.taken.Add(1)
	return true
}

func (l *countedLimit) release() {
	l.taken.Add(-1)
	l.free.Add(1)
}

// udpClient is a connected socket: it sees only what comes from where it sends.
type udpClient struct {
	*net.UDPConn
	t testing.TB
}

func newUDPClient(t testing.TB, to netip.AddrPort) udpClient {
	t.Helper()
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return udpClient{conn, t}
}

func (c udpClient) client() netip.AddrPort { return c.LocalAddr().(*net.UDPAddr).AddrPort() }

func (c udpClient) send(b []byte) {
	c.t.Helper()
	_, err := c.Write(b)
	require.NoError(c.t, err)
}

// receive is the next datagram that comes.
func (c udpClient) receive() []byte {
	c.t.Helper()
	b, err := c.receiveIn(patience)
	require.NoError(c.t, err)
	return b
}

func (c udpClient) receiveIn(d time.Duration) ([]byte, error) {
	if err := c.SetReadDeadline(time.Now().Add(d)); err != nil {
		return nil, err
	}
	b := make([]byte, maxDatagram)
	n, err := c.Read(b)
	return b[:n], err
}

func (c udpClient) ask(b string) string {
	c.t.Helper()
	c.send([]byte(b))
	return string(c.receive())
}

// udpEndpoint answers datagrams.
type udpEndpoint struct {
	addr netip.AddrPort
	conn *net.UDPConn
	wg   sync.WaitGroup

	mu  sync.Mutex
	got []gotDatagram
}

type gotDatagram struct {
	from    netip.AddrPort // the flow's socket
	payload string
}

// newUDPEndpoint answers each datagram with what reply makes of it; nil is
// not sent. It ends with the test, or by stop.
func newUDPEndpoint(t testing.TB, at netip.AddrPort, reply func([]byte) []byte) *udpEndpoint {
	t.Helper()
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	require.NoError(t, err)
	_ = conn.SetReadBuffer(4 << 20)
	e := &udpEndpoint{addr: conn.LocalAddr().(*net.UDPAddr).AddrPort(), conn: conn}
	e.wg.Go(func() { e.serve(reply) })
	t.Cleanup(e.stop)
	return e
}

func (e *udpEndpoint) serve(reply func([]byte) []byte) {
	b := make([]byte, maxDatagram)
	for {
		n, from, err := e.conn.ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		e.mu.Lock()
		e.got = append(e.got, gotDatagram{from, string(b[:n])})
		e.mu.Unlock()
		if r := reply(b[:n]); r != nil {
			_, _ = e.conn.WriteToUDPAddrPort(r, from)
		}
	}
}

func (e *udpEndpoint) stop() {
	_ = e.conn.Close()
	e.wg.Wait()
}

func (e *udpEndpoint) received() []gotDatagram {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.got)
}

// last is the newest datagram with that payload, once it has come.
func (e *udpEndpoint) last(t testing.TB, payload string) gotDatagram {
	t.Helper()
	var found gotDatagram
	require.Eventually(t, func() bool {
		for _, g := range slices.Backward(e.received()) {
			if g.payload == payload {
				found = g
				return true
			}
		}
		return false
	}, patience, time.Millisecond, "the endpoint never got %q", payload)
	return found
}

func echoUDP(t testing.TB) *udpEndpoint {
	t.Helper()
	return newUDPEndpoint(t, netip.AddrPortFrom(ownAddr(), 0), mirror)
}

// udpNamed is an endpoint that puts a name before what it echoes.
func namedUDP(t testing.TB, name string) *udpEndpoint {
	t.Helper()
	return newUDPEndpoint(t, netip.AddrPortFrom(ownAddr(), 0), func(b []byte) []byte {
		return append([]byte(name+" "), b...)
	})
}

// udpSink is an endpoint that never replies.
func sinkUDP(t testing.TB) *udpEndpoint {
	t.Helper()
	return newUDPEndpoint(t, netip.AddrPortFrom(ownAddr(), 0), func([]byte) []byte { return nil })
}

func mirror(b []byte) []byte { return b }

// noise is n bytes that look like no other n.

func noise(n int) []byte {
	b := make([]byte, 0, n+sha256.Size)
	for i := 0; len(b) < n; i++ {
		sum := sha256.Sum256(fmt.Append(nil, n, i))
		b = append(b, sum[:]...)
	}
	return b[:n]
}
