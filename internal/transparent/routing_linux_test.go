package transparent

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// rules are all policy rules of a host, and the routes of our table.
func rules(t *testing.T, h *nettest.Host) string {
	t.Helper()
	var all string
	for _, f := range []string{"-4", "-6"} {
		all += h.Output(t, "ip", f, "rule") + h.Output(t, "sh", "-c", "ip "+f+" route show table 30576 2>/dev/null || true")
	}
	return all
}

// Whatever was there, Ensure makes one rule and one route in each family; Check
// tells of each that is not as it was, and Remove removes them and nothing else.
func TestTransparent_routing(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "ip")
	node := nettest.New(t).Node
	r := Routing{Reply: 0x8000000, Own: 0x4000000, Families: service.Families()}
	fresh := rules(t, node)
	node.Do(t, func() {
		require.NoError(t, Remove(), "there is none")
		require.ErrorIs(t, r.Check(), ErrDamaged)
		require.NoError(t, r.Ensure())
		require.NoError(t, r.Check())
	})
	made := rules(t, node)
	assert.Contains(t, made, "from all fwmark 0x8000000/0xc000000 lookup 30576")
	node.Do(t, func() { require.NoError(t, r.Ensure(), "twice") })
	require.Equal(t, made, rules(t, node))

	for _, damage := range []string{
		"ip -4 rule del table 30576", "ip -6 rule del table 30576", "ip -4 route flush table 30576", "ip -6 route flush table 30576",
		"ip rule add pref 78 fwmark 1 table 30576", "ip -6 rule add pref 77 fwmark 1 table 30576",
		"ip rule del table 30576; ip rule add pref 77 fwmark 0x8000000/0x8000000 table 30576",
	} {
		node.Output(t, "sh", "-c", damage)
		node.Do(t, func() {
			require.ErrorIs(t, r.Check(), ErrDamaged, damage)
			require.NoError(t, r.Ensure(), damage)
			require.NoError(t, r.Check(), damage)
		})
		require.Equal(t, made, rules(t, node), damage)
	}

	r.Reply = 0x10000000 // another mark, and one family less
	r.Families = []service.Family{service.IPv4}
	node.Do(t, func() {
		require.NoError(t, r.Ensure())
		require.NoError(t, r.Check())
	})
	assert.NotContains(t, node.Output(t, "ip", "-6", "rule"), "30576")
	assert.Contains(t, node.Output(t, "ip", "rule"), "fwmark 0x10000000/0x14000000")
	node.Do(t, func() { require.NoError(t, Remove()) })
	assert.Equal(t, fresh, rules(t, node))
}

// With this setting the kernel would drop the replies.
func TestTransparent_srcValidMark(t *testing.T) {
	t.Parallel()
	node := nettest.New(t).Node
	node.Do(t, func() { assert.NoError(t, MayDial()) })
	node.Sysctl(t, "net/ipv4/conf/all/src_valid_mark", "1")
	node.Do(t, func() { assert.ErrorContains(t, MayDial(), "src_valid_mark") })
}

func TestTransparent_ways(t *testing.T) {
	t.Parallel()
	bed := nettest.New(t)
	bridged := bed.AddBridge(t, 1)[0]
	for _, f := range service.Families() {
		bed.Node.Do(t, func() {
			d, err := NewDecider(true)
			require.NoError(t, err)
			defer d.Close()
			pod, back := bed.Pod.Addr(f), bed.Back.Addr(f)
			on := Node{Name: "node-a", Pods: service.LocalPods{Ranges: []netip.Prefix{
				netip.MustParsePrefix("10.10.0.0/16"), netip.MustParsePrefix("fd10::/16"),
			}}, Primary: []netip.Addr{bed.Node.Addr(f)}}
			d.Set(on, []service.Port{{
				Endpoints: []service.Endpoint{{Addr: netip.AddrPortFrom(pod, 80), Node: "node-a"}, {Addr: netip.AddrPortFrom(back, 80), Node: "node-b"}},
				Local:     []service.Endpoint{{Addr: netip.AddrPortFrom(bridged.Addr(f), 80), Node: "node-a"}},
			}})
			assert.Equal(t, Dial{
				Client: pod, Endpoint: back, Pod: true, Bridged: true,
				ToClient: Way{Attached: true, Link: nettest.NodeToPod}, ToEndpoint: Way{Link: nettest.NodeToBack},
			}, d.Dial(pod, back))
			assert.Equal(t, Dial{
				Client: back, Endpoint: bridged.Addr(f), Pod: true, Local: true, Bridged: true,
				ToClient: Way{Link: nettest.NodeToBack}, ToEndpoint: Way{Attached: true, Link: nettest.NodeToBridged},
			}, d.Dial(back, bridged.Addr(f)))
			assert.True(t, d.Dial(bed.Node.Addr(f), pod).ToClient.Here)

			on.Pods = service.LocalPods{Interface: "cni*"}
			d.Set(on, nil)
			assert.True(t, d.ShowsClient(bridged.Addr(f), back), "by the name of its interface")
			assert.False(t, d.ShowsClient(pod, back))
			on.Pods.Interface = nettest.NodeToPod
			d.Set(on, nil)
			assert.True(t, d.ShowsClient(pod, back))
			assert.False(t, d.ShowsClient(bridged.Addr(f), back))
		})
	}
}
