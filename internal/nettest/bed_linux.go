package nettest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// Patience is how long this package waits for what should happen at once. It
// is long because it only ends a test that has failed, on a machine that may
// be busy.
const Patience = 20 * time.Second

// Bed is a network of four hosts.
type Bed struct {
	Client *Host // a neighbour of the node
	Node   *Host // forwards; where a proxy runs
	Pod    *Host // on the node, behind an interface without an IPv4 address
	Back   *Host // where endpoints are; eight addresses in each family
}

// New lays out a Bed that lasts until the test has ended and its own clean-ups
// are done. Tests with a Bed each may run in parallel.
func New(t testing.TB) *Bed {
	t.Helper()
	Need(t, "nsenter")
	return lay(t, newHost(t, "node"))
}

// Hosts are all hosts of the bed, for loops.
func (b *Bed) Hosts() []*Host { return []*Host{b.Client, b.Node, b.Pod, b.Back} }

// Need ends the test, with the reason, if it does not run as root or if a
// command that it uses is not installed.
func Need(t testing.TB, commands ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test lays out network namespaces and needs root: run the tests as root")
	}
	var lacking []string
	for _, c := range commands {
		if _, err := exec.LookPath(c); err != nil {
			lacking = append(lacking, c)
		}
	}
	if len(lacking) > 0 {
		t.Fatalf("this test needs commands that are not installed: %s (make test installs them on Debian)", strings.Join(lacking, ", "))
	}
}

// newHost makes a namespace with lo up, closed when the test ends.
func newHost(t testing.TB, name string) *Host {
	t.Helper()
	ns, err := newNamespace()
	if err != nil {
		t.Fatalf("making a network namespace (needs root with CAP_SYS_ADMIN and a kernel with CONFIG_NET_NS): %v", err)
	}
	t.Cleanup(func() {
		if err := ns.Close(); err != nil {
			t.Errorf("closing the namespace of %s: %v", name, err)
		}
	})
	return &Host{Name: name, ns: ns}
}

// newNamespace makes a namespace that lives as long as its handle, and leaves
// the calling thread where it was.
func newNamespace() (ns netns.NsHandle, err error) {
	runtime.LockOSThread()
	before, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return netns.None(), err
	}
	defer func() {
		if backErr := netns.Set(before); backErr != nil {
			err = errors.Join(err, backErr) // stays locked: the thread dies with its goroutine
		} else {
			runtime.UnlockOSThread()
		}
		err = errors.Join(err, before.Close())
	}()
	return netns.New()
}

// lay makes the other hosts and joins all to the node.
func lay(t testing.TB, node *Host) *Bed {
	t.Helper()
	b := &Bed{
		Client: newHost(t, "client"),
		Node:   node,
		Pod:    newHost(t, "pod"),
		Back:   newHost(t, "back"),
	}
	b.Client.addrs = addresses("10.10.1.2", "fd10:1::2")
	b.Node.addrs = addresses("10.10.2.1", "10.10.1.1", "fd10:2::1", "fd10:1::1")
	b.Pod.addrs = addresses("10.10.3.2", "fd10:3::2")
	var back []string
	for i := 2; i <= 9; i++ {
		back = append(back, fmt.Sprintf("10.10.2.%d", i), fmt.Sprintf("fd10:2::%d", i))
	}
	b.Back.addrs = addresses(back...)

	for _, h := range b.Hosts() {
		require.NoError(t, h.prepare(), "preparing %s; the bed needs IPv4 and IPv6", h.Name)
	}
	// The pod's side of its link has addresses with a prefix of full length
	// and routes to neighbours that are nobody's address; the node answers for
	// 169.254.1.1 because it proxies ARP.
	joins := []struct {
		nodeLink  string
		nodeAddrs []string
		peer      *Host
		peerLen   prefixLengths
		gateways  []string
		nodeRoute []netip.Addr
	}{
		{NodeToClient, []string{"10.10.1.1/24", "fd10:1::1/64"}, b.Client, prefixLengths{24, 64}, []string{"10.10.1.1", "fd10:1::1"}, nil},
		{NodeToBack, []string{"10.10.2.1/24", "fd10:2::1/64"}, b.Back, prefixLengths{24, 64}, []string{"10.10.2.1", "fd10:2::1"}, nil},
		{NodeToPod, []string{"fe80::1/64"}, b.Pod, prefixLengths{32, 128}, []string{"169.254.1.1", "fe80::1"},
			[]netip.Addr{b.Pod.Addr(service.IPv4), b.Pod.Addr(service.IPv6)}},
	}
	for _, j := range joins {
		require.NoError(t, link(node, j.nodeLink, j.peer), "joining %s to the node (needs a kernel with CONFIG_VETH)", j.peer.Name)
		require.NoError(t, node.address(j.nodeLink, j.nodeAddrs...))
		require.NoError(t, j.peer.address("eth0", j.peer.prefixes(j.peerLen)...))
		require.NoError(t, j.peer.defaultRoutes("eth0", j.gateways...))
		require.NoError(t, node.hostRoutes(j.nodeLink, j.nodeRoute))
	}
	require.NoError(t, node.sysctl("net/ipv4/conf/"+NodeToPod+"/proxy_arp", "1"))
	require.NoError(t, node.sysctl("net/ipv4/neigh/"+NodeToPod+"/proxy_delay", "0"))
	require.NoError(t, node.defaultRoutes(NodeToBack, b.Back.Addr(service.IPv4).String(), b.Back.Addr(service.IPv6).String()))
	return b
}

// prefixLengths are those of a host's IPv4 and IPv6 addresses.
type prefixLengths struct{ v4, v6 int }

func addresses(all ...string) map[service.Family][]netip.Addr {
	m := make(map[service.Family][]netip.Addr)
	for _, s := range all {
		a := netip.MustParseAddr(s)
		m[service.FamilyOf(a)] = append(m[service.FamilyOf(a)], a)
	}
	return m
}

// prefixes are the host's addresses, each with its family's prefix length.
func (h *Host) prefixes(length prefixLengths) []string {
	var s []string
	for _, a := range h.addrs[service.IPv4] {
		s = append(s, netip.PrefixFrom(a, length.v4).String())
	}
	for _, a := range h.addrs[service.IPv6] {
		s = append(s, netip.PrefixFrom(a, length.v6).String())
	}
	return s
}

// prepare brings lo up and sets what a host of a cluster has set. Two things are
// off that would make tests wait: duplicate address detection, which keeps an
// address unusable for a second, and the limits of ICMP errors, which leave all
// but some datagrams to closed ports without an answer.
func (h *Host) prepare() error {
	settings := [][2]string{
		{"net/ipv4/ip_forward", "1"},
		{"net/ipv6/conf/all/forwarding", "1"},
		{"net/ipv6/conf/default/forwarding", "1"},
		{"net/ipv6/conf/all/accept_dad", "0"},
		{"net/ipv6/conf/default/accept_dad", "0"},
		{"net/ipv4/icmp_ratemask", "0"},   // the types that are limited, as bits: none
		{"net/ipv6/icmp/ratemask", "127"}, // as a list, which cannot be empty; 127 is no error
		{"net/ipv4/conf/all/rp_filter", "2"},
		{"net/ipv4/conf/default/rp_filter", "2"},
	}
	for _, s := range settings {
		if err := h.sysctl(s[0], s[1]); err != nil {
			return err
		}
	}
	return h.withLink("lo", func(nl *netlink.Handle, l netlink.Link) error { return nl.LinkSetUp(l) })
}

// link makes a pair of interfaces, one on the node and "eth0" on the peer, and
// brings both up.
func link(node *Host, name string, peer *Host) error {
	nl, err := netlink.NewHandleAt(node.ns)
	if err != nil {
		return fmt.Errorf("opening netlink on %s: %w", node.Name, err)
	}
	defer nl.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	pair := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(peer.ns)}
	if err := nl.LinkAdd(pair); err != nil {
		return fmt.Errorf("adding the link %s: %w", name, err)
	}
	up := func(nl *netlink.Handle, l netlink.Link) error { return nl.LinkSetUp(l) }
	return errors.Join(node.withLink(name, up), peer.withLink("eth0", up))
}

func (h *Host) address(dev string, prefixes ...string) error {
	return h.withLink(dev, func(nl *netlink.Handle, l netlink.Link) error {
		for _, p := range prefixes {
			a, err := netlink.ParseAddr(p)
			if err != nil {
				return fmt.Errorf("parsing %s: %w", p, err)
			}
			if a.IP.To4() == nil {
				a.Flags = unix.IFA_F_NODAD
			}
			if err := nl.AddrAdd(l, a); err != nil {
				return fmt.Errorf("adding %s: %w", p, err)
			}
		}
		return nil
	})
}

func (h *Host) defaultRoutes(dev string, gateways ...string) error {
	return h.withLink(dev, func(nl *netlink.Handle, l netlink.Link) error {
		for _, g := range gateways {
			r := &netlink.Route{LinkIndex: l.Attrs().Index, Gw: net.ParseIP(g), Flags: int(netlink.FLAG_ONLINK)}
			if err := nl.RouteAdd(r); err != nil {
				return fmt.Errorf("adding the default route by %s: %w", g, err)
			}
		}
		return nil
	})
}

func (h *Host) hostRoutes(dev string, addrs []netip.Addr) error {
	return h.withLink(dev, func(nl *netlink.Handle, l netlink.Link) error {
		for _, a := range addrs {
			dst := &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
			r := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: dst, Scope: netlink.SCOPE_LINK}
			if err := nl.RouteAdd(r); err != nil {
				return fmt.Errorf("adding a route to %s: %w", a, err)
			}
		}
		return nil
	})
}

func (h *Host) withLink(dev string, fn func(*netlink.Handle, netlink.Link) error) error {
	nl, err := netlink.NewHandleAt(h.ns)
	if err != nil {
		return fmt.Errorf("opening netlink on %s: %w", h.Name, err)
	}
	defer nl.Close()
	l, err := nl.LinkByName(dev)
	if err != nil {
		return fmt.Errorf("finding %s on %s: %w", dev, h.Name, err)
	}
	if err := fn(nl, l); err != nil {
		return fmt.Errorf("%s on %s: %w", dev, h.Name, err)
	}
	return nil
}
