package nettest_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netns"
	"go.uber.org/goleak"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

func TestMain(m *testing.M) {
	nettest.Isolate()
	goleak.VerifyTestMain(m)
}

func TestEveryHostReachesBack(t *testing.T) {
	t.Parallel()
	bed := nettest.New(t)
	for _, f := range service.Families() {
		for i, a := range bed.Back.Addrs(f) {
			bed.Back.ServeTCP(t, net.JoinHostPort(a.String(), "80"), nettest.Banner(a.String()))
			if i == 0 {
				bed.Back.ServeUDP(t, net.JoinHostPort(a.String(), "53"), nettest.Named(a.String()))
			}
		}
		for _, h := range bed.Hosts() {
			for _, a := range bed.Back.Addrs(f) {
				got, err := h.ReadBanner(t.Context(), net.JoinHostPort(a.String(), "80"))
				if assert.NoError(t, err, "from %s", h.Name) {
					assert.Equal(t, a.String(), got)
				}
			}
			dns := net.JoinHostPort(bed.Back.Addr(f).String(), "53")
			got, err := h.ExchangeUDP(t.Context(), dns, "question")
			require.NoError(t, err, "from %s", h.Name)
			assert.Equal(t, bed.Back.Addr(f).String()+" question", got)
		}
	}
}

func TestEveryHostReachesPodAndNode(t *testing.T) {
	t.Parallel()
	bed := nettest.New(t)
	for _, f := range service.Families() {
		for _, to := range []*nettest.Host{bed.Pod, bed.Node} {
			address := net.JoinHostPort(to.Addr(f).String(), "7")
			to.ServeTCP(t, address, nettest.Echo)
			for _, h := range bed.Hosts() {
				got, err := h.ExchangeTCP(t.Context(), address, "ping")
				require.NoError(t, err, "from %s to %s", h.Name, to.Name)
				assert.Equal(t, "ping", got)
			}
		}
	}
}

func TestPodLinkHasNoIPv4AddressOnNode(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "ip")
	bed := nettest.New(t)
	assert.Empty(t, bed.Node.Output(t, "ip", "-4", "-o", "addr", "show", "dev", nettest.NodeToPod))
	assert.Contains(t, bed.Pod.Output(t, "ip", "-4", "route"), "default via 169.254.1.1")
}

func TestServiceAddressesLeadToNode(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "ip")
	bed := nettest.New(t)
	for _, h := range []*nettest.Host{bed.Client, bed.Pod, bed.Node} {
		for _, a := range []string{"10.96.0.10", "fd96::10"} {
			assert.Contains(t, h.Output(t, "ip", "route", "get", a), " via ", "from %s", h.Name)
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	bed := nettest.New(t)
	for _, f := range service.Families() {
		for _, network := range []string{"tcp", "udp"} {
			for _, h := range []*nettest.Host{bed.Client, bed.Pod, bed.Node} {
				h.AssertRefused(t, network, net.JoinHostPort(bed.Back.Addr(f).String(), "9"))
			}
		}
	}
}

func TestServerClosesItsConnectionsAndFreesItsPort(t *testing.T) {
	t.Parallel()
	bed := nettest.New(t)
	address := net.JoinHostPort(bed.Back.Addr(service.IPv4).String(), "80")
	s := bed.Back.ServeTCP(t, address, nettest.Banner("first"))
	c, err := bed.Client.Dial(t.Context(), "tcp", address)
	require.NoError(t, err)
	defer func() { assert.NoError(t, c.Close()) }()
	require.Eventually(t, func() bool { return s.Open() == 1 }, nettest.Patience, 1e6)
	s.Close()
	assert.Equal(t, 1, s.Taken())
	bed.Client.AssertRefused(t, "tcp", address)

	bed.Back.ServeHTTP(t, net.JoinHostPort(bed.Back.Addr(service.IPv4).String(), "8080"), "web-1")
	body, err := bed.Client.Get(t.Context(), "http://10.10.2.2:8080/")
	require.NoError(t, err)
	assert.Equal(t, "web-1\n", body)
}

// TestClosedPortRefusesThoughOthersFork: a child between fork and exec has the sockets
// of its parent.
func TestClosedPortRefusesThoughOthersFork(t *testing.T) {
	t.Parallel()
	bed := nettest.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	var forks sync.WaitGroup
	defer forks.Wait()
	defer cancel()
	for range 4 {
		forks.Go(func() {
			for ctx.Err() == nil {
				assert.NoError(t, exec.Command("true").Run())
			}
		})
	}
	for _, f := range service.Families() {
		for range 50 {
			s := bed.Back.ServeTCP(t, net.JoinHostPort(bed.Back.Addr(f).String(), "80"), nettest.Echo)
			s.Close()
			require.True(t, bed.Client.AssertRefused(t, "tcp", s.Addr.String()))
			s = bed.Back.ServeUDP(t, net.JoinHostPort(bed.Back.Addr(f).String(), "0"), nettest.Mirror)
			s.Close()
			require.True(t, bed.Client.AssertRefused(t, "udp", s.Addr.String()))
		}
	}
}

func TestDo(t *testing.T) {
	t.Parallel()
	bed := nettest.New(t)
	here := func() string {
		ns, err := netns.Get()
		require.NoError(t, err)
		defer func() { assert.NoError(t, ns.Close()) }()
		return ns.UniqueId()
	}
	outside := here()
	bed.Client.Do(t, func() {
		client := here()
		assert.NotEqual(t, outside, client)
		bed.Node.Do(t, func() { assert.NotEqual(t, client, here()) })
		assert.Equal(t, client, here(), "a Do inside a Do goes back to where it was")
	})
	assert.Equal(t, outside, here())
}

func TestCommandRunsOnHost(t *testing.T) {
	t.Parallel()
	bed := nettest.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	var inside string
	bed.Pod.Do(t, func() {
		var err error
		inside, err = os.Readlink("/proc/thread-self/ns/net")
		require.NoError(t, err)
	})
	assert.Equal(t, inside, strings.TrimSpace(bed.Pod.Output(t, "readlink", "/proc/self/ns/net")))

	cmd := bed.Pod.Command(ctx, "sleep", "1000")
	require.NoError(t, cmd.Start())
	cancel()
	assert.Error(t, cmd.Wait(), "the end of its context ends the command")
}

func TestNewHere(t *testing.T) {
	for range 2 { // the second finds nothing left of the first
		t.Run("bed", func(t *testing.T) {
			bed := nettest.NewHere(t)
			l := make(chan net.Listener)
			go func() { // not the test's thread: it is on the node all the same
				listener, err := net.Listen("tcp", net.JoinHostPort(bed.Node.Addr(service.IPv6).String(), "80"))
				assert.NoError(t, err)
				l <- listener
			}()
			listener := <-l
			require.NotNil(t, listener)
			defer func() { assert.NoError(t, listener.Close()) }()
			c, err := bed.Client.Dial(t.Context(), "tcp", listener.Addr().String())
			require.NoError(t, err)
			assert.NoError(t, c.Close())
		})
	}
}
