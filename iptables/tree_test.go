package iptables

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// cost is how many rules a new connection to each portal is compared with: on
// average and at most. Each must come to its listener.
func cost(t *testing.T, tr *tracer, from string, redirects []service.Redirect) (average, most int) {
	t.Helper()
	sum := 0
	for _, r := range redirects {
		p := nettest.Packet{From: from, Proto: r.Protocol, Dst: r.Portal}
		require.Equal(t, "listener "+r.Listener.String(), tr.trace(p), "%s", p)
		sum += tr.passed
		most = max(most, tr.passed)
	}
	return sum / len(redirects), most
}

func TestConnectionPassesSomeTensOfRules(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		redirects     []service.Redirect
		average, most int
	}{
		"10 Services":             {clusterIPs(service.IPv4, 10), 20, 30},
		"1,000 Services":          {clusterIPs(service.IPv4, 1000), 35, 60},
		"10,000 Services":         {clusterIPs(service.IPv4, 10000), 42, 70},
		"10,000 Services of IPv6": {clusterIPs(service.IPv6, 10000), 42, 70},
		"all node ports":          {nodePorts(), 42, 70},
		"both":                    {append(nodePorts(), clusterIPs(service.IPv4, 10000)...), 45, 80},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := rendered(t, dual(), c.redirects)
			for _, from := range []string{"client", "node"} {
				average, most := cost(t, tr, from, c.redirects)
				t.Logf("from %s: %d rules on average, %d at most, jumps and guard included", from, average, most)
				assert.LessOrEqual(t, average, c.average)
				assert.LessOrEqual(t, most, c.most)
			}
			tr.trace(nettest.Sent("client", "TCP 192.0.2.77:443"))
			assert.LessOrEqual(t, tr.passed, c.most, "a packet that is for no portal")
		})
	}
}

// A change touches few chains, and as many among 10,000 Services as among 100.
func TestOneChangeTouchesItsSubChain(t *testing.T) {
	t.Parallel()
	for _, n := range []int{100, 1000, 10000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			c := dual().Defaults()
			all, err := c.entries(clusterIPs(service.IPv4, n))
			require.NoError(t, err)
			r := rand.New(rand.NewPCG(uint64(n), 2))
			sum := 0
			const times = 20
			for range times {
				i := r.IntN(len(all))
				without := slices.Delete(slices.Clone(all), i, i+1)
				lines := strings.Count(change(c.chains(service.IPv4, without), c.chains(service.IPv4, all)), "\n")
				sum += lines
				// 32 rules of a chain that becomes too long are written into eight others.
				assert.LessOrEqual(t, lines, 2+2*(linear+8), "lines for iptables-restore")
			}
			t.Logf("%d lines on average", sum/times)
		})
	}
}

// Portals that agree in all digits are listed in one chain, and found.
func TestEqualDigitsAreListed(t *testing.T) {
	t.Parallel()
	var redirects []service.Redirect
	for high := range 100 {
		for _, proto := range []service.Protocol{service.TCP, service.UDP} {
			r := nettest.Redirect("same", "TCP 10.96.0.10:80", service.ToListener, "169.254.77.1:10000")
			r.Protocol = proto
			r.Portal = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(high), 0x80, 10}), 80)
			redirects = append(redirects, r)
		}
	}
	c := dual().Defaults()
	_, most := cost(t, rendered(t, c, redirects), "node", redirects)
	assert.LessOrEqual(t, most, 100+30)
	entries, err := c.entries(redirects)
	require.NoError(t, err)
	for at := range c.chains(service.IPv4, entries) {
		assert.LessOrEqual(t, len(at.chain), maxChainLength)
	}
}

// Whatever the portals are, each packet gets what a plain list of them says.
func TestTreeSaysWhatAListWould(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(rand.Uint64(), 0))
	for range 30 {
		// Few addresses and ports, so that some are alike in their digits.
		portal := func() string {
			addr := fmt.Sprintf("10.%d.%d.%d", 96+r.IntN(2), []int{0, 1, 128}[r.IntN(3)], r.IntN(20))
			if r.IntN(4) == 0 {
				addr = fmt.Sprintf("127.0.0.%d", r.IntN(4)+1)
			}
			return []string{"TCP ", "UDP "}[r.IntN(2)] + fmt.Sprintf("%s:%d", addr, 1+r.IntN(1<<(1+r.IntN(15))))
		}
		want := make(map[string]string)
		var redirects []service.Redirect
		for range r.IntN(2000) {
			p := portal()
			if _, taken := want[p]; taken {
				continue
			}
			switch r.IntN(6) {
			case 0:
				want[p] = nettest.Refused
				redirects = append(redirects, nettest.Redirect("s", p, service.Refuse))
			case 1:
				want[p] = nettest.Dropped
				redirects = append(redirects, nettest.Redirect("s", p, service.Drop))
			default:
				to := fmt.Sprintf("169.254.77.1:%d", 10000+r.IntN(20000))
				want[p] = "listener " + to
				redirects = append(redirects, nettest.Redirect("s", p, service.ToListener, to))
			}
		}
		tr := rendered(t, dual(), redirects)
		for range 500 {
			p := portal()
			if len(redirects) > 0 && r.IntN(2) == 0 {
				one := redirects[r.IntN(len(redirects))]
				p = string(one.Protocol) + " " + one.Portal.String()
			}
			expected, known := want[p]
			if !known {
				expected = nettest.Passes
			}
			require.Equal(t, expected, tr.trace(nettest.Sent("node", p)), p)
			if strings.Contains(p, " 127.") {
				expected = nettest.Passes
			}
			require.Equal(t, expected, tr.trace(nettest.Sent("client", p)), p)
		}
	}
}
