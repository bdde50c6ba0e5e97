package node

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/service"
)

func addrs(list ...string) []netip.Addr {
	var all []netip.Addr
	for _, s := range list {
		all = append(all, netip.MustParseAddr(s))
	}
	return all
}

func TestFactsOf(t *testing.T) {
	t.Parallel()
	lo := link{loopback: true, addrs: addrs("127.0.0.1", "::1", "169.254.77.1", "fd77::1")}
	eth0 := link{addrs: addrs("fe80::1", "192.0.2.2", "192.0.2.3", "fd00::2")}
	eth1 := link{addrs: addrs("198.51.100.7")}
	own := addrs("169.254.77.1", "fd77::1")

	for name, tt := range map[string]struct {
		options  Options
		hostname string
		links    []link
		outbound map[service.Family]netip.Addr
		name     string
		v4, v6   string
	}{
		"the address of the default route": {
			links: []link{lo, eth0, eth1}, outbound: map[service.Family]netip.Addr{service.IPv4: eth1.addrs[0]},
			v4: "198.51.100.7", v6: "fd00::2",
		},
		"a preferred address, where the node has it": {
			options: Options{Prefer: addrs("203.0.113.9", "198.51.100.7", "192.0.2.3", "127.0.0.1")},
			links:   []link{lo, eth0, eth1}, outbound: map[service.Family]netip.Addr{service.IPv4: eth0.addrs[1]},
			v4: "198.51.100.7", v6: "fd00::2",
		},
		"no default route: the first that others can reach": {
			links: []link{lo, eth0, eth1}, v4: "192.0.2.2", v6: "fd00::2",
		},
		"a route by way of our own address does not count": {
			options: Options{Own: own},
			links:   []link{lo, eth0}, outbound: map[service.Family]netip.Addr{service.IPv6: own[1]},
			v4: "192.0.2.2", v6: "fd00::2",
		},
		"a route's address that no link has does not count": {
			links: []link{eth0}, outbound: map[service.Family]netip.Addr{service.IPv4: netip.MustParseAddr("10.9.9.9")},
			v4: "192.0.2.2", v6: "fd00::2",
		},
		"an address that a router keeps on its loopback interface": {
			links: []link{{loopback: true, addrs: addrs("127.0.0.1", "10.255.0.1")}, {addrs: addrs("fe80::1")}},
			v4:    "10.255.0.1",
		},
		"one family":                               {links: []link{lo, eth1}, options: Options{Own: own}, v4: "198.51.100.7"},
		"no network":                               {links: []link{lo}, options: Options{Own: own}},
		"no network, and loopback is to do":        {links: []link{lo}, options: Options{Own: own, Loopback: true}, v4: "127.0.0.1", v6: "::1"},
		"loopback is for want of anything else":    {links: []link{lo, eth1}, options: Options{Own: own, Loopback: true}, v4: "198.51.100.7", v6: "::1"},
		"the name is in small letters":             {hostname: " Node-A\n", name: "node-a"},
		"the name that is given":                   {hostname: "node-a", options: Options{Hostname: "B.example"}, name: "b.example"},
		"a mapped IPv4 address is not an IPv6 one": {links: []link{{addrs: addrs("192.0.2.9")}}, v4: "192.0.2.9"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tt.hostname == "" {
				tt.hostname, tt.name = "n", "n"
			}
			facts, err := factsOf(tt.options, tt.hostname, tt.links, tt.outbound)
			require.NoError(t, err)
			assert.Equal(t, tt.name, facts.Name)
			want := map[service.Family]netip.Addr{}
			if tt.v4 != "" {
				want[service.IPv4] = netip.MustParseAddr(tt.v4)
			}
			if tt.v6 != "" {
				want[service.IPv6] = netip.MustParseAddr(tt.v6)
			}
			assert.Equal(t, want, facts.Primary)
		})
	}
}

func TestFactsOf_localIsSortedAndWhole(t *testing.T) {
	t.Parallel()
	facts, err := factsOf(Options{}, "n", []link{{addrs: addrs("fd00::2", "192.0.2.2")}, {loopback: true, addrs: addrs("127.0.0.1", "192.0.2.2")}}, nil)
	require.NoError(t, err)
	assert.Equal(t, addrs("127.0.0.1", "192.0.2.2", "fd00::2"), facts.Local)
}

func TestFactsOf_noName(t *testing.T) {
	t.Parallel()
	_, err := factsOf(Options{}, " ", nil, nil)
	assert.EqualError(t, err, "this machine has no host name: give the node's name with --hostname-override")
}

func TestRead(t *testing.T) {
	t.Parallel()
	facts, err := Read(Options{Hostname: "here", Loopback: true})
	require.NoError(t, err)
	assert.Equal(t, "here", facts.Name)
	assert.Contains(t, facts.Local, netip.MustParseAddr("127.0.0.1"))
	assert.Contains(t, facts.Local, facts.Primary[service.IPv4])

	facts, err = Read(Options{})
	require.NoError(t, err)
	assert.NotEmpty(t, facts.Name)
}
