//go:build linux && !portable

package nftables

import (
	"hash/crc32"
	"net/netip"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// grammar is every line that a script may have, whatever it is made from.
var grammar = regexp.MustCompile(`^(?:` +
	`# .*` +
	`|(?:add|delete) table ip6? userspace-proxy[a-z0-9-]*` +
	`|add (?:map|set|chain|rule) ip6? userspace-proxy[a-z0-9-]* [a-z0-9_]+(?: [^\x00-\x1f]*)?` +
	`|add element ip6? userspace-proxy[a-z0-9-]* [a-z_]+ \{ [0-9a-f.:]+ \. (?:tcp|udp) \. [0-9]+` +
	` comment "[A-Za-z0-9/.:_?~-]{1,128}" : (?:[0-9a-f.:]+ \. [0-9]+|goto refuse|drop) \}` +
	`|add element ip6? userspace-proxy[a-z0-9-]* listeners \{ (?:tcp|udp) \. [0-9]+ \}` +
	`)$`)

// For seeds of the fuzz target, which nft sees by chance only.
func TestNFTTakesHostileNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"", "\"", "a\" : drop }\nflush ruleset\n#", "\x00\xff\\", "$x", "@portals", strings.Repeat("n", 300)} {
		r := nettest.Mixed()
		for i := range r {
			r[i].Service.Namespace, r[i].Service.Name, r[i].Service.Port = name, name, name
		}
		w.sync(t, r)
		w.sync(t, nil)
	}
}

// Whatever names, addresses and configuration come in, nft takes the script,
// and no line of it is anything but ours.
func FuzzRender(f *testing.F) {
	nettest.Need(f, "nft")
	for _, seed := range [][4]string{
		{"userspace-proxy", "10.96.0.10", "", "default"},
		{"userspace-proxy-x", "fe80::1", "eth0 }; flush ruleset; #", "a\" : drop }\nflush ruleset\n#"},
		{"userspace-proxy\ndelete table ip filter", "::ffff:127.0.0.1", "", "\x00\xff\\\""},
		{"", "127.0.0.1", "", strings.Repeat("n", 300)},
		{"userspace-proxy", "::", "", "$x"},
	} {
		for _, action := range []service.Action{service.ToListener, service.Refuse, service.Drop, "accept }"} {
			f.Add(seed[0], "169.254.77.1", seed[1], seed[2], uint16(80), string(service.TCP), string(action),
				"169.254.77.1", uint16(10000), seed[3], "web", "http", false)
			f.Add(seed[0], "fd77::1", seed[1], seed[2], uint16(53), string(service.UDP), string(action),
				"fd77::1", uint16(20000), seed[3], seed[2], seed[1], true)
		}
	}
	f.Fuzz(func(t *testing.T, table, listen, addr, zone string, port uint16, proto, action, listener string, listenerPort uint16,
		namespace, name, portName string, shared bool,
	) {
		parse := func(s string) netip.Addr {
			a, err := netip.ParseAddr(s)
			if err != nil || zone == "" || !a.Is6() {
				return a
			}
			return a.WithZone(zone)
		}
		c := dual()
		c.Table, c.SharedListen = table, shared
		if a, err := netip.ParseAddr(listen); err == nil {
			c.Listen[service.FamilyOf(a)] = a
		}
		r := service.Redirect{
			Portal:   netip.AddrPortFrom(parse(addr), port),
			Protocol: service.Protocol(proto),
			Action:   service.Action(action),
			Listener: netip.AddrPortFrom(parse(listener), listenerPort),
			Service:  service.PortName{Namespace: namespace, Name: name, Port: portName, Protocol: service.Protocol(proto)},
		}
		other := r
		other.Portal = netip.MustParseAddrPort("10.96.0.1:1")
		script := Render(c, []service.Redirect{r, other})
		elements := 0
		for line := range strings.Lines(script) {
			require.Regexp(t, grammar, strings.TrimSuffix(line, "\n"))
			if strings.HasPrefix(line, "add element") {
				elements++
			}
		}
		assert.LessOrEqual(t, elements, 4, "two redirects, two listeners")
		if crc32.ChecksumIEEE([]byte(script))%32 != 0 {
			return // nft takes 10 ms; the grammar is the stricter judge
		}
		check := exec.CommandContext(t.Context(), "nft", "-c", "-f", "-")
		check.Stdin = strings.NewReader(script)
		out, err := check.CombinedOutput()
		require.NoError(t, err, "%s\nof\n%s", out, script)
	})
}
