package healthport

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/userspace-proxy/userspace-proxy/config"
	"github.com/userspace-proxy/userspace-proxy/service"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

type running struct {
	*Server
	healthy atomic.Bool
	end     func()
}

func start(t *testing.T) *running {
	t.Helper()
	log, _ := logtest.NewNullLogger()
	r := &running{}
	r.healthy.Store(true)
	r.Server = New(r.healthy.Load, log)
	r.run(t)
	return r
}

func (r *running) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		assert.NoError(t, r.Run(ctx))
	}()
	r.end = func() { cancel(); <-done }
	t.Cleanup(r.end)
}

// What was open before is open when it runs again.
func TestServer_runsAgain(t *testing.T) {
	t.Parallel()
	r := start(t)
	addr := netip.MustParseAddr("127.0.0.1")
	at := netip.AddrPortFrom(addr, freePort(t, "127.0.0.1"))
	r.Set([]config.HealthCheck{check("web", at.Port(), 1)}, []netip.Addr{addr})
	open := func() bool { _, ok := ask(t, at); return ok }
	for range 2 {
		require.Eventually(t, open, patience, time.Millisecond)
		r.end()
		require.False(t, open())
		r.run(t)
	}
}

func check(name string, port uint16, v4 int) config.HealthCheck {
	return config.HealthCheck{
		Service: service.ServiceRef{Source: "test", Namespace: "default", Name: name},
		Port:    port, Local: map[service.Family]int{service.IPv4: v4},
	}
}

// freePort is a port that is free on an address now.
func freePort(t *testing.T, address string) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", address+":0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).AddrPort().Port()
}

type got struct {
	code         int
	weight, body string
}

// ask asks at a place; false: nobody answers.
func ask(t *testing.T, at netip.AddrPort) (got, bool) {
	t.Helper()
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + at.String() + "/")
	if err != nil {
		return got{}, false
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return got{response.StatusCode, response.Header.Get("X-Load-Balancing-Endpoint-Weight"), string(body)}, true
}

func body(count, healthy string) string {
	return "{\n\t\"service\": {\n\t\t\"namespace\": \"default\",\n\t\t\"name\": \"web\"\n\t},\n\t\"localEndpoints\": " + count +
		",\n\t\"serviceProxyHealthy\": " + healthy + "\n}"
}

func requireGot(t *testing.T, at netip.AddrPort, want got) {
	t.Helper()
	var last got
	require.Eventually(t, func() bool {
		var ok bool
		last, ok = ask(t, at)
		return ok && last == want
	}, patience, 10*time.Millisecond, "%s", at)
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	s := start(t)
	at := netip.AddrPortFrom(netip.MustParseAddr("127.66.90.1"), freePort(t, "127.66.90.1"))
	addrs := []netip.Addr{at.Addr(), netip.MustParseAddr("::1")} // the Service has no IPv6
	s.Set([]config.HealthCheck{check("web", at.Port(), 2)}, addrs)
	requireGot(t, at, got{200, "2", body("2", "true")})
	_, answered := ask(t, netip.AddrPortFrom(addrs[1], at.Port()))
	assert.False(t, answered)

	s.Set([]config.HealthCheck{check("web", at.Port(), 0)}, addrs)
	requireGot(t, at, got{503, "0", body("0", "true")})
	s.Set([]config.HealthCheck{check("web", at.Port(), 1)}, addrs)
	s.healthy.Store(false)
	requireGot(t, at, got{503, "1", body("1", "false")})
	s.healthy.Store(true)
	requireGot(t, at, got{200, "1", body("1", "true")})

	s.Set(nil, addrs)
	require.Eventually(t, func() bool { _, answered := ask(t, at); return !answered }, patience, 10*time.Millisecond)
	require.Eventually(t, func() bool { return len(s.Problems()) == 0 }, patience, 10*time.Millisecond)
}

// TestTaken: a port that somebody has is a problem until it is free.
func TestTaken(t *testing.T) {
	t.Parallel()
	s := start(t)
	stranger, err := net.Listen("tcp4", "127.66.90.2:0")
	require.NoError(t, err)
	at := stranger.Addr().(*net.TCPAddr).AddrPort()
	s.Set([]config.HealthCheck{check("web", at.Port(), 1)}, []netip.Addr{at.Addr()})
	require.Eventually(t, func() bool { return len(s.Problems()) == 1 }, patience, 10*time.Millisecond)
	p := s.Problems()[0]
	assert.Equal(t, "Service default/web", p.Object)
	assert.Equal(t, "spec.healthCheckNodePort", p.Field)
	assert.Equal(t, "PortTaken", p.Reason)
	assert.Equal(t, "load balancers cannot ask at "+at.String()+": bind: address already in use", p.Detail)
	assert.NotEmpty(t, p.Advice)
	assert.Equal(t, "test", p.Service.Source)

	require.NoError(t, stranger.Close())
	requireGot(t, at, got{200, "1", body("1", "true")})
	require.Eventually(t, func() bool { return len(s.Problems()) == 0 }, patience, 10*time.Millisecond)
}

// TestCase26_TwoServicesHaveOnePort: the older one is asked about, whichever was
// there first, and the other is told so.
func TestCase26_TwoServicesHaveOnePort(t *testing.T) {
	t.Parallel()
	s := start(t)
	at := netip.AddrPortFrom(netip.MustParseAddr("127.66.90.4"), freePort(t, "127.66.90.4"))
	addrs := []netip.Addr{at.Addr()}
	younger := check("younger", at.Port(), 7)
	s.Set([]config.HealthCheck{younger}, addrs)
	require.Eventually(t, func() bool { g, ok := ask(t, at); return ok && g.weight == "7" }, patience, 10*time.Millisecond)
	s.Set([]config.HealthCheck{check("web", at.Port(), 2), younger}, addrs)
	requireGot(t, at, got{200, "2", body("2", "true")})
	problems := s.Problems()
	require.Len(t, problems, 1)
	assert.Equal(t, "Service default/younger", problems[0].Object)
	assert.Equal(t, "load balancers cannot ask at "+at.String()+": Service default/web, which is older, has the port", problems[0].Detail)

	s.Set([]config.HealthCheck{younger}, addrs)
	require.Eventually(t, func() bool { g, ok := ask(t, at); return ok && g.weight == "7" }, patience, 10*time.Millisecond)
	require.Eventually(t, func() bool { return len(s.Problems()) == 0 }, patience, 10*time.Millisecond)
}

// TestMoves: one Service takes over what another had, in one step.
func TestMoves(t *testing.T) {
	t.Parallel()
	s := start(t)
	at := netip.AddrPortFrom(netip.MustParseAddr("127.66.90.3"), freePort(t, "127.66.90.3"))
	s.Set([]config.HealthCheck{check("old", at.Port(), 1)}, []netip.Addr{at.Addr()})
	require.Eventually(t, func() bool { g, ok := ask(t, at); return ok && g.code == 200 }, patience, 10*time.Millisecond)
	s.Set([]config.HealthCheck{check("web", at.Port(), 3)}, []netip.Addr{at.Addr()})
	requireGot(t, at, got{200, "3", body("3", "true")})
	s.end()
	_, answered := ask(t, at)
	assert.False(t, answered)
}
