package proxy

import (
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/loadbalancer"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// steps is a log that keeps what traces say.
type steps struct {
	mu    sync.Mutex
	lines []string
	names *strings.Replacer // of addresses
}

func (s *steps) Levels() []logrus.Level { return logrus.AllLevels }

func (s *steps) Fire(e *logrus.Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	who := e.Message
	for _, kind := range []string{"connection", "flow"} {
		if n, ok := e.Data[kind]; ok {
			who = fmt.Sprintf("%s %v: %s", kind, n, e.Message)
		}
	}
	s.lines = append(s.lines, who)
	return nil
}

// of are the lines of one connection or flow, or all that are of none. Addresses
// have names, and times are T.
func (s *steps) of(who string, but ...string) (lines []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range s.lines {
		if rest, ok := strings.CutPrefix(line, who); ok && !slices.Contains(but, rest) {
			rest = s.names.Replace(rest)
			lines = append(lines, regexp.MustCompile(`\b[0-9.]+(µs|ms|s)\b|\b0s\b`).ReplaceAllString(rest, "T"))
		}
	}
	return lines
}

// saying waits for a trace to be as long as this, and compares.
func (s *steps) saying(t *testing.T, who string, want ...string) {
	t.Helper()
	assert.Eventually(t, func() bool { return len(s.of(who)) >= len(want) }, patience, time.Millisecond)
	assert.Equal(t, want, s.of(who))
}

// traced is a Proxier that traces the Service "web".
func traced(t *testing.T, c Config, names map[string]netip.AddrPort) (*fixture, *steps) {
	t.Helper()
	s := &steps{}
	log := logrus.New()
	log.SetOutput(io.Discard)
	log.AddHook(s)
	c.Log, c.Trace = log, []Traced{{Name: "web"}}
	f := start(t, c)
	pairs := []string{f.portal.String(), "PORTAL"}
	for name, addr := range names {
		pairs = append(pairs, addr.String(), name)
	}
	s.names = strings.NewReplacer(pairs...)
	return f, s
}

func TestTraceOfAConnection(t *testing.T) {
	t.Parallel()
	dead := nobody(t)
	alive, accepted := one(t)
	f, s := traced(t, Config{}, map[string]netip.AddrPort{"DEAD": dead, "ALIVE": alive})
	p := f.port(dead, alive)
	p.Affinity = time.Hour
	f.update(p)

	client := f.dial()
	endpoint := receive(t, accepted)
	write(t, client, "hello")
	require.NoError(t, client.CloseWrite())
	assert.Equal(t, "hello", readAll(t, endpoint))
	write(t, endpoint, "and good bye")
	require.NoError(t, endpoint.CloseWrite())
	assert.Equal(t, "and good bye", readAll(t, client))
	s.saying(t, "connection 1: ",
		"accepted at PORTAL",
		"connecting to DEAD: it is its turn, and from now on it has the client's affinity",
		"no connection to DEAD after T: connect: connection refused",
		"connecting to ALIVE: it is its turn, while the one with the client's affinity rests or was tried",
		"connected to ALIVE, T after the accept",
		"the client has closed its side after 5 bytes; the endpoint is told so",
		"the endpoint has closed its side after 12 bytes; the client is told so",
		"ended (eof) after T: 5 bytes up, 12 bytes down",
	)

	again := f.dial()
	endpoint = receive(t, accepted)
	write(t, endpoint, "!")
	_, err := io.ReadFull(again, make([]byte, 1))
	require.NoError(t, err) // the proxy knows that it is connected: a reset before that is a failed dial
	require.NoError(t, endpoint.SetLinger(0))
	require.NoError(t, endpoint.Close())
	_, err = again.Read(make([]byte, 1))
	require.Error(t, err)
	require.NoError(t, again.Close())
	f.drained()
	assert.Equal(t, []string{
		"accepted at PORTAL",
		"connecting to ALIVE: it has the client's affinity",
		"connected to ALIVE, T after the accept",
		"the endpoint has reset its connection, or vanished; the client is told so when it has all that came before",
		"ended (reset) after T: 0 bytes up, 1 byte down",
	}, s.of("connection 2: ", "the client has closed its side after 0 bytes; the endpoint is told so")) // where a reset is passed on as an end
}

func TestTraceOfARefusal(t *testing.T) {
	t.Parallel()
	dead := nobody(t)
	f, s := traced(t, Config{MaxConnections: 1}, map[string]netip.AddrPort{"DEAD": dead})
	f.serve(dead)
	requireTurnedAway(t, netip.MustParseAddr("127.0.0.1"), f.portal)
	s.saying(t, "connection 1: ",
		"accepted at PORTAL",
		"connecting to DEAD: it is its turn",
		"no connection to DEAD after T: connect: connection refused",
		"there is no other endpoint",
		"the client is reset: no endpoint could be connected to",
		"ended (abort) after T: 0 bytes up, 0 bytes down",
	)

	alive, accepted := one(t)
	f.serve(alive)
	f.drained()
	f.dial()
	receive(t, accepted)
	requireTurnedAway(t, netip.MustParseAddr("127.0.0.1"), f.portal)
	s.saying(t, "connection 3: ",
		"reset at once: as many connections as --max-connections allows are open: new ones are reset until others end",
	)
}

// An endpoint that does not answer has another beside it.
func TestTraceOfAnEndpointThatIsOutrun(t *testing.T) {
	t.Parallel()
	r := &tracer{log: logrus.New(), traced: []Traced{{Name: "web"}}}
	s := &steps{names: strings.NewReplacer()}
	r.log.(*logrus.Logger).SetOutput(io.Discard)
	r.log.(*logrus.Logger).AddHook(s)
	key := service.Key{PortName: service.PortName{Namespace: "default", Name: "web", Protocol: service.TCP}}
	rules := r.of(key, netip.MustParseAddrPort("169.254.77.1:10000"))
	tr := rules.accepted(netip.MustParseAddrPort("192.0.2.1:4000"), netip.MustParseAddrPort("10.96.0.1:80"))
	tr.outrun(netip.MustParseAddrPort("192.0.2.2:80"), 300*time.Millisecond)
	s.saying(t, "connection 1: ",
		"accepted at 10.96.0.1:80, which rules lead to the listener 169.254.77.1:10000",
		"given up on 192.0.2.2:80 after T: another answered first",
	)
}

func TestTraceOfAFlow(t *testing.T) {
	t.Parallel()
	dead, echo := netip.AddrPortFrom(ownAddr(), 9), udpEcho(t)
	f, s := traced(t, Config{UDPTimeout: 2 * time.Second}, map[string]netip.AddrPort{"ECHO": echo, "DEAD": dead})
	f.update(f.udpPort("web", f.portal, dead, echo))
	client := newUDPClient(t, f.portal)
	client.send([]byte("lost"))
	require.Eventually(t, func() bool { // the refusal comes by ICMP, and the next datagram picks anew
		client.send([]byte("hello"))
		_, err := client.receiveIn(20 * time.Millisecond)
		return err == nil
	}, patience, time.Millisecond)

	require.Eventually(t, func() bool { return len(s.of("flow 1: ")) >= 7 }, patience, time.Millisecond)
	lines := s.of("flow 1: ")
	for i, line := range lines { // how many it takes is chance
		lines[i] = regexp.MustCompile(`\b[1-9]\d* datagrams? \([1-9]\d* bytes\)`).ReplaceAllString(line, "SOME")
	}
	assert.Equal(t, []string{
		"first datagram, at the listener PORTAL",
		"connecting to DEAD: it is its turn",
		"DEAD refuses (ICMP), or no way leads there: the next datagram picks anew",
		"connecting to ECHO: it is its turn",
		"the flow to DEAD is over (refused) after T: SOME up, 0 datagrams (0 bytes) down",
		"the endpoint has answered, T after the first datagram",
		"the flow to ECHO is over (idle) after T: SOME up, SOME down",
	}, lines)
}

func TestTraceOfSomeOnly(t *testing.T) {
	t.Parallel()
	f, s := traced(t, Config{}, nil)
	other := netip.AddrPortFrom(ownAddr(), 80)
	f.update(f.portNamed("other", other, named(t, "b")))
	client := dialTCP(t, other)
	require.NoError(t, client.CloseWrite())
	assert.Equal(t, "b\n", readAll(t, client))
	require.NoError(t, client.Close())
	f.drained()
	assert.Empty(t, s.of(""), "not even that nothing was traced")

	for _, tt := range []struct {
		traced Traced
		has    bool
	}{
		{Traced{Name: "web"}, true},
		{Traced{Namespace: "shop", Name: "web"}, true},
		{Traced{Namespace: "shop", Name: "web", Port: "http"}, true},
		{Traced{Name: "web", Port: "http"}, true},
		{Traced{Namespace: "default", Name: "web"}, false},
		{Traced{Name: "db"}, false},
		{Traced{Name: "web", Port: "https"}, false},
	} {
		assert.Equal(t, tt.has, tt.traced.has(service.PortName{Namespace: "shop", Name: "web", Port: "http"}), tt.traced)
	}
}

// What is too much is left out, and said to be.
func TestTraceIsBounded(t *testing.T) {
	t.Parallel()
	f, s := traced(t, Config{}, nil)
	f.serve(named(t, "a"))
	const connections = 100
	for range connections {
		assert.Equal(t, "a", f.who())
	}
	f.drained()
	f.stop()
	<-f.done
	said, leftOut := 0, 0
	for _, line := range s.of("") {
		var n int
		if got, _ := fmt.Sscanf(line, "%d lines of traced connections were left out", &n); got == 1 {
			leftOut += n
		} else {
			said++
		}
	}
	const steps = 6 // of each connection
	assert.Equal(t, connections*steps, said+leftOut)
	if took := time.Since(f.began); took < connections*steps*time.Second/TracedLines/2 {
		assert.Positive(t, leftOut)
	}
}

// TestNoTraceCostsNothing: where nobody traces, a pick allocates nothing.
func TestNoTraceCostsNothing(t *testing.T) {
	g := loadbalancer.NewGroup(time.Now)
	g.Update([]service.Endpoint{{Addr: netip.MustParseAddrPort("192.0.2.1:80")}}, 0)
	var none *trace
	assert.Zero(t, testing.AllocsPerRun(100, func() { none.pick(g, netip.Addr{}, nil) }))
	assert.Nil(t, newTracer(nil, nil).of(service.Key{}, netip.AddrPort{}))
}
