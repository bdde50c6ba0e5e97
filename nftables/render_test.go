package nftables

import (
	"flag"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

var update = flag.Bool("update", false, "write the golden files anew")

// dual is a configuration of a node with both families.
func dual() Config {
	return Config{Listen: map[service.Family]netip.Addr{
		service.IPv4: netip.MustParseAddr("169.254.77.1"),
		service.IPv6: netip.MustParseAddr("fd77::1"),
	}}
}

// replies is one with dials from clients' addresses.
func replies() Config {
	c := dual()
	c.Replies = 0x8000000
	return c
}

// scoped is one with pods.
func scoped() Config {
	c := dual()
	c.LocalPods = nettest.LocalPods()["ranges"]
	return c
}

func TestRender(t *testing.T) {
	t.Parallel()
	v4 := dual()
	delete(v4.Listen, service.IPv6)
	shared := Config{
		Table:        "userspace-proxy-other",
		Listen:       map[service.Family]netip.Addr{service.IPv4: netip.MustParseAddr("10.10.2.1")},
		SharedListen: true,
		Ports:        service.PortRange{First: 20000, Last: 20999},
		Mark:         0x3,
	}
	invalid := dual()
	invalid.Table = "filter\nflush ruleset"
	invalid.Listen[service.IPv4] = netip.MustParseAddr("127.0.0.1")
	for name, c := range map[string]struct {
		config    Config
		redirects []service.Redirect
	}{
		"nothing":  {dual(), nil},
		"replies":  {replies(), nil},
		"scoped":   {scoped(), slices.Concat(nettest.BothFamilies()[0].Scoped(), nettest.BothFamilies()[1].Scoped())},
		"mixed":    {dual(), nettest.Mixed()},
		"ipv4only": {v4, nettest.Mixed()},
		"shared": {shared, []service.Redirect{
			nettest.Redirect("web", "TCP 10.96.0.10:80", service.ToListener, "10.10.2.1:20000"),
			nettest.Redirect("web", "TCP 192.0.2.1:80", service.ToListener, "10.10.2.1:20000"),
			nettest.Redirect("dns", "UDP 10.96.0.10:53", service.ToListener, "10.10.2.1:20001"),
			nettest.Redirect("none", "TCP 10.96.0.11:80", service.Refuse),
		}},
		"leftout": {dual(), []service.Redirect{
			nettest.Redirect("good", "TCP 10.96.0.10:80", service.ToListener, "169.254.77.1:10000"),
			nettest.Redirect("mapped", "TCP [::ffff:10.96.0.13]:80", service.ToListener, "169.254.77.1:10000"),
			nettest.Redirect("thief", "TCP 10.96.0.10:80", service.Refuse),
			nettest.Redirect("zone", "TCP [fe80::1%eth0]:80", service.Refuse),
			nettest.Redirect("any", "TCP 0.0.0.0:80", service.Refuse),
			nettest.Redirect("zero", "TCP 10.96.0.12:0", service.Refuse),
			nettest.Redirect("sctp", "SCTP 10.96.0.12:80", service.Refuse),
			nettest.Redirect("what", "TCP 10.96.0.12:80", "reflect"),
			nettest.Redirect("cross", "TCP 10.96.0.12:80", service.ToListener, "[fd77::1]:10000"),
			nettest.Redirect("unguarded", "TCP 10.96.0.12:80", service.ToListener, "169.254.77.1:80"),
			nettest.Redirect("nowhere", "TCP 10.96.0.12:80", service.ToListener),
		}},
		"invalid": {invalid, nettest.Mixed()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Render(c.config, c.redirects)
			golden := filepath.Join("testdata", name+".nft")
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			assert.Equal(t, string(want), got)
		})
	}
}

func TestTransparent_renderBridges(t *testing.T) {
	t.Parallel()
	got := RenderBridges(BridgesConfig{Marks: 0xc000000, Idle: 5 * time.Minute})
	golden := filepath.Join("testdata", "bridges.nft")
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(want), got)
}

func TestTransparent_marksDiffer(t *testing.T) {
	t.Parallel()
	c := replies().Defaults()
	require.NoError(t, c.Validate())
	c.Replies |= c.Mark
	require.ErrorContains(t, c.Validate(), "mark 0xc000000 of replies: must have none of the bits of 0x4000000")
}

func TestRenderIsTheSameInAnyOrder(t *testing.T) {
	t.Parallel()
	all := append(nettest.Mixed(),
		nettest.Redirect("thief", "TCP 10.96.0.10:80", service.Refuse),
		nettest.Redirect("another", "TCP 10.96.0.10:80", service.ToListener, "169.254.77.1:10003"),
		nettest.Redirect("another", "TCP 10.96.0.10:80", service.ToListener, "169.254.77.1:10003"),
	)
	want := Render(dual(), all)
	assert.Contains(t, want, `{ 10.96.0.10 . tcp . 80 comment "default/another:main/TCP" : 169.254.77.1 . 10003 }`,
		"of several the first by name has the portal")
	for range 100 {
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		require.Equal(t, want, Render(dual(), all))
	}
}

// What would open the node or hide clients is in no rule, whatever is asked.
func TestNeverMasqueradesNorOpensLoopback(t *testing.T) {
	t.Parallel()
	s := Render(dual(), nettest.Mixed())
	for _, word := range []string{"masquerade", "snat", "route_localnet", "redirect", "flush", "127.0.0.0"} {
		assert.NotContains(t, s, word)
	}
	for line := range strings.Lines(s) {
		if strings.Contains(line, " prerouting ") || strings.Contains(line, " deny_prerouting ") {
			assert.NotContains(t, line, "@loopback")
		}
	}
}

func TestComment(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 63)
	for name, c := range map[string]struct {
		service service.PortName
		want    string
	}{
		"plain":   {service.PortName{Namespace: "default", Name: "web", Port: "http", Protocol: service.TCP}, "default/web:http/TCP"},
		"hostile": {service.PortName{Namespace: "a\"; flush ruleset; #", Name: "b\\\n\x00ä", Protocol: service.UDP}, "a???flush?ruleset???/b????/UDP"},
		"long":    {service.PortName{Namespace: long, Name: long, Port: "port", Protocol: service.TCP}, long + "/" + long + "~"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := element{set: portalsMap, service: c.service}.comment()
			assert.Equal(t, c.want, got)
			assert.LessOrEqual(t, len(got), maxComment)
		})
	}
}

func TestConfigNamesAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	require.NoError(t, dual().Defaults().Validate())
	err := Config{
		Table: "kube-proxy",
		Listen: map[service.Family]netip.Addr{
			service.IPv4: netip.MustParseAddr("127.0.0.1"),
			service.IPv6: netip.MustParseAddr("10.0.0.1"),
			"IPX":        netip.MustParseAddr("10.0.0.1"),
		},
		Ports:   service.PortRange{First: 3, Last: 2},
		Timeout: -1,
	}.Validate()
	for _, fault := range []string{
		`table "kube-proxy": must be "userspace-proxy", or begin with "userspace-proxy-"`,
		`listening address "127.0.0.1" of "IPv4": the kernel takes nothing for a loopback address from outside`,
		`listening address "10.0.0.1" of "IPv6": not an address of the family`,
		`listening address "10.0.0.1" of "IPX": no such family`,
		`port range 3-2: must begin above 0`,
		`mark 0: own dials could not be told from other traffic`,
		`timeout -1ns: must be above 0`,
	} {
		assert.ErrorContains(t, err, fault)
	}
	assert.ErrorContains(t, Config{}.Defaults().Validate(), "no listening address in any family")
}

func TestReadCounts(t *testing.T) {
	t.Parallel()
	for name, list := range map[string]string{
		"no JSON":     `table ip x`,
		"no map":      `{"nftables": [{"map": {"name": "portals", "elem": 3}}]}`,
		"no portal":   `{"nftables": [{"map": {"name": "portals", "elem": [[{"elem": {"val": {"concat": ["a", "tcp", 80]}}}, 0]]}}]}`,
		"short":       `{"nftables": [{"map": {"name": "portals", "elem": [[{"elem": {"val": {"concat": ["10.0.0.1"]}}}, 0]]}}]}`,
		"no elements": `{"nftables": [{"map": {"name": "portals", "elem": [["10.0.0.1", 0]]}}]}`,
	} {
		counts := Counts{Portals: make(map[Portal]uint64)}
		assert.ErrorContains(t, readCounts([]byte(list), &counts), "nft listed", name)
	}
}
