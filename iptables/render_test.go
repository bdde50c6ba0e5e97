package iptables

import (
	"flag"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
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

// clusterIPs are n Services in a range as large as a cluster's may be, as an
// allocator hands them out: by chance.
func clusterIPs(f service.Family, n int) []service.Redirect {
	r := rand.New(rand.NewPCG(uint64(n), 1))
	var list []service.Redirect
	for i, low := range r.Perm(1 << 15)[:n] {
		addr, listen := netip.AddrFrom4([4]byte{10, 96, byte(low >> 8), byte(low)}), "169.254.77.1"
		if f == service.IPv6 {
			addr, listen = netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x96, 14: byte(low >> 8), 15: byte(low)}), "fd77::1"
		}
		list = append(list, service.Redirect{
			Portal: netip.AddrPortFrom(addr, 80), Protocol: service.TCP, Action: service.ToListener,
			Listener: netip.AddrPortFrom(netip.MustParseAddr(listen), uint16(10000+i)),
			Service:  service.PortName{Namespace: "default", Name: "web", Port: "http", Protocol: service.TCP},
		})
	}
	return list
}

// nodePorts are all ports of the usual range at one address, of one protocol.
func nodePorts() []service.Redirect {
	var list []service.Redirect
	for i := range uint16(2768) {
		r := nettest.Redirect("np", "TCP 10.10.2.1:1", service.ToListener, "169.254.77.1:1")
		r.Portal = netip.AddrPortFrom(r.Portal.Addr(), 30000+i)
		r.Listener = netip.AddrPortFrom(r.Listener.Addr(), 10000+i)
		list = append(list, r)
	}
	return list
}

func TestRender(t *testing.T) {
	t.Parallel()
	v4 := dual()
	delete(v4.Listen, service.IPv6)
	shared := Config{
		Kind:         Legacy,
		Listen:       map[service.Family]netip.Addr{service.IPv4: netip.MustParseAddr("10.10.2.1")},
		SharedListen: true,
		Ports:        service.PortRange{First: 20000, Last: 65535},
		Mark:         0x3,
	}
	invalid := dual()
	invalid.Kind = "nft\n-F"
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
			nettest.Redirect("dns", "TCP 10.96.0.10:53", service.ToListener, "10.10.2.1:20001"),
			nettest.Redirect("dns", "UDP 10.96.0.10:53", service.ToListener, "10.10.2.1:20001"),
			nettest.Redirect("api", "TCP 10.96.0.10:443", service.ToListener, "10.10.2.1:20003"),
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
		"divided": {v4, append(clusterIPs(service.IPv4, 40), nodePorts()[:60]...)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for f, ending := range map[service.Family]string{service.IPv4: ".v4", service.IPv6: ".v6"} {
				got := Render(c.config, f, c.redirects)
				golden := filepath.Join("testdata", name+ending)
				if *update && got != "" {
					require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
				}
				want, err := os.ReadFile(golden)
				if got != "" {
					require.NoError(t, err)
				}
				assert.Equal(t, string(want), got)
			}
		})
	}
}

func TestRenderIsTheSameInAnyOrder(t *testing.T) {
	t.Parallel()
	all := append(nettest.Mixed(),
		nettest.Redirect("thief", "TCP 10.96.0.10:80", service.Refuse),
		nettest.Redirect("another", "TCP 10.96.0.10:80", service.ToListener, "169.254.77.1:10003"),
		nettest.Redirect("another", "TCP 10.96.0.10:80", service.ToListener, "169.254.77.1:10003"),
	)
	all = append(all, clusterIPs(service.IPv4, 200)...)
	want := Render(dual(), service.IPv4, all)
	assert.Contains(t, want, `-d 10.96.0.10/32 -p tcp -m tcp --dport 80 -m comment --comment "default/another:main/TCP" -j DNAT --to-destination 169.254.77.1:10003`,
		"of several the first by name has the portal")
	for range 20 {
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		require.Equal(t, want, Render(dual(), service.IPv4, all))
	}
}

// What would open the node or hide clients is in no rule, whatever is asked.
func TestNeverMasqueradesNorOpensLoopback(t *testing.T) {
	t.Parallel()
	for _, f := range service.Families() {
		s := Render(dual(), f, nettest.Mixed())
		for _, word := range []string{"MASQUERADE", "SNAT", "route_localnet", "REDIRECT", "-F", "FORWARD", "-P "} {
			assert.NotContains(t, s, word)
		}
		for line := range strings.Lines(s) {
			if strings.Contains(line, " -g "+loopbackChain) {
				assert.Contains(t, line, "-A "+outputChain)
			}
			if strings.HasPrefix(line, "-A "+portalsChain) || strings.HasPrefix(line, "-A "+portalsBelow) {
				assert.NotContains(t, line, "127.0.0")
				assert.NotContains(t, line, "-d ::1/")
			}
		}
	}
}

func TestComment(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 63)
	tooLong := strings.Repeat("n", 300)
	for name, c := range map[string]struct {
		service service.PortName
		action  service.Action
		want    string
	}{
		"plain":   {service.PortName{Namespace: "default", Name: "web", Port: "http", Protocol: service.TCP}, service.ToListener, "default/web:http/TCP"},
		"refused": {service.PortName{Namespace: "default", Name: "web", Protocol: service.UDP}, service.Refuse, "default/web/UDP refused"},
		"hostile": {service.PortName{Namespace: "a\"; -F", Name: "b\\\n\x00ä", Protocol: service.UDP}, service.Drop, "a???-F/b????/UDP dropped"},
		"long":    {service.PortName{Namespace: long, Name: long, Port: long, Protocol: service.TCP}, service.ToListener, long + "/" + long + ":" + long + "/TCP"},
		"toolong": {service.PortName{Name: tooLong}, service.Refuse, "/" + tooLong[:245] + "~ refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := entry{service: c.service, action: c.action}
			got := e.comment(e.end())
			assert.Equal(t, c.want, got)
			assert.LessOrEqual(t, len(got), maxComment)
		})
	}
}

func TestConfigNamesAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	require.NoError(t, dual().Defaults().Validate())
	err := Config{
		Kind: "ebtables",
		Listen: map[service.Family]netip.Addr{
			service.IPv4: netip.MustParseAddr("127.0.0.1"),
			service.IPv6: netip.MustParseAddr("10.0.0.1"),
			"IPX":        netip.MustParseAddr("10.0.0.1"),
		},
		Ports:    service.PortRange{First: 3, Last: 2},
		LockWait: 1500 * time.Millisecond,
		Timeout:  time.Second,
	}.Validate()
	for _, fault := range []string{
		`kind "ebtables": must be "nft", "legacy" or empty`,
		`listening address "127.0.0.1" of "IPv4": the kernel takes nothing for a loopback address from outside`,
		`listening address "10.0.0.1" of "IPv6": not an address of the family`,
		`listening address "10.0.0.1" of "IPX": no such family`,
		`port range 3-2: must begin above 0`,
		`mark 0: own dials could not be told from other traffic`,
		`lock wait 1.5s: must be whole seconds`,
		`timeout 1s: must be above the lock wait of 1.5s`,
		`periods of checks 0s and 0s: must be above 0`,
	} {
		assert.ErrorContains(t, err, fault)
	}
	assert.ErrorContains(t, Config{}.Defaults().Validate(), "no listening address in any family")
	all := dual()
	all.Ports = service.PortRange{First: 1, Last: 65535}
	assert.ErrorContains(t, all.Defaults().Validate(), "must leave the ports 1 and 2, or 65534 and 65535")
}

// FuzzRender holds whatever a Service may be called, and wherever a portal may
// be, against what a line of iptables-restore may be.
func FuzzRender(f *testing.F) {
	f.Add("default", "web", "http", "TCP", "10.96.0.10:80", "169.254.77.1:10000", "listener", uint16(10000), uint16(29999), false)
	f.Add("a\nCOMMIT\n*nat\n-F", `"`, " -j ACCEPT", "UDP", "[fd96::1]:53", "[fd77::1]:10001", "refuse", uint16(1), uint16(65535), true)
	line := regexp.MustCompile(`^(\*(nat|filter)|COMMIT|:USERSPACE-PROXY-[A-Z0-7-]{1,12} - \[0:0\]|#.*|` +
		`-A USERSPACE-PROXY-[A-Z0-7-]{1,12}( !?[a-zA-Z0-9:./\[\]_-]*| "[a-zA-Z0-9:./?~ _-]*")*)$`)
	f.Fuzz(func(t *testing.T, namespace, name, port, proto, portal, listener, action string, first, last uint16, shared bool) {
		c := dual()
		c.Ports, c.SharedListen = service.PortRange{First: first, Last: last}, shared
		at, _ := netip.ParseAddrPort(portal)
		to, _ := netip.ParseAddrPort(listener)
		redirects := []service.Redirect{{
			Portal: at, Listener: to, Protocol: service.Protocol(proto), Action: service.Action(action),
			Service: service.PortName{Namespace: namespace, Name: name, Port: port, Protocol: service.Protocol(proto)},
		}}
		for i := range uint16(100) { // so that trees have levels
			redirects = append(redirects, redirects[0])
			redirects[i].Portal = netip.AddrPortFrom(at.Addr(), at.Port()+i*97)
		}
		for _, f := range service.Families() {
			for l := range strings.Lines(Render(c, f, redirects)) {
				require.Regexp(t, line, strings.TrimSuffix(l, "\n"))
			}
		}
	})
}
