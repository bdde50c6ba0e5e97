package bed

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Bed is the three hosts.
type Bed struct {
	Client *Host
	Node   *Host // where proxies run
	Back   *Host // where endpoints are
}

// Endpoints are the addresses of back.
func Endpoints() []netip.Addr {
	first := netip.AddrFrom4([4]byte{10, 10, 2, 2})
	all := []netip.Addr{first}
	for len(all) < 8 {
		all = append(all, all[len(all)-1].Next())
	}
	return all
}

// Lay makes the hosts and joins them. The caller closes the Bed.
func Lay() (*Bed, error) {
	b := new(Bed)
	for name, h := range map[string]**Host{"client": &b.Client, "node": &b.Node, "back": &b.Back} {
		var err error
		if *h, err = newHost(name); err != nil {
			b.Close()
			return nil, err
		}
	}
	if err := b.join(); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// Close ends the hosts. The kernel kills what still runs on them.
func (b *Bed) Close() {
	for _, h := range []*Host{b.Client, b.Node, b.Back} {
		if h != nil {
			h.close()
		}
	}
}

func (b *Bed) join() error {
	for _, h := range []*Host{b.Client, b.Node, b.Back} {
		if err := h.prepare(); err != nil {
			return err
		}
	}
	back := make([]string, 0, 8)
	for _, a := range Endpoints() {
		back = append(back, a.String()+"/24")
	}
	return errors.Join(
		link(b.Node, "eth-client", b.Client),
		link(b.Node, "eth-back", b.Back),
		b.Node.address("eth-client", "10.10.1.1/24"),
		b.Node.address("eth-back", "10.10.2.1/24"),
		b.Client.address("eth0", "10.10.1.2/24"),
		b.Back.address("eth0", back...),
		b.Client.defaultRoute("10.10.1.1"),
		b.Back.defaultRoute("10.10.2.1"),
		b.Node.defaultRoute(Endpoints()[0].String()), // a proxy finds the node's own address by it
	)
}

// prepare brings lo up and sets what busy hosts have set: ports for many
// connections to one address, used again after a second of TIME_WAIT, and
// queues that a burst of connections fits in.
func (h *Host) prepare() error {
	for _, s := range [][2]string{
		{"net/ipv4/ip_forward", "1"},
		{"net/ipv4/ip_local_port_range", "30000 65535"},
		{"net/ipv4/tcp_tw_reuse", "1"},
		{"net/ipv4/tcp_max_syn_backlog", "65535"},
		{"net/core/somaxconn", "65535"},
	} {
		if err := h.sysctl(s[0], s[1]); err != nil {
			return err
		}
	}
	return h.withLink("lo", (*netlink.Handle).LinkSetUp)
}

// AddAddress gives the host an address on lo.
func (h *Host) AddAddress(a netip.Addr) error {
	return h.address("lo", netip.PrefixFrom(a, a.BitLen()).String())
}

// FlushConntrack empties the host's table of connections.
func (h *Host) FlushConntrack() error {
	err := h.withNetlink(func(nl *netlink.Handle) error { return nl.ConntrackTableFlush(netlink.ConntrackTable) })
	if err != nil {
		return fmt.Errorf("emptying the conntrack table of %s: %w", h.Name, err)
	}
	return nil
}

// link makes a pair of interfaces, one on the node and "eth0" on the peer.
func link(node *Host, name string, peer *Host) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	pair := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(peer.ns.Fd())}
	if err := node.withNetlink(func(nl *netlink.Handle) error { return nl.LinkAdd(pair) }); err != nil {
		return fmt.Errorf("adding the link %s: %w", name, err)
	}
	return errors.Join(node.withLink(name, (*netlink.Handle).LinkSetUp), peer.withLink("eth0", (*netlink.Handle).LinkSetUp))
}

func (h *Host) address(dev string, prefixes ...string) error {
	return h.withLink(dev, func(nl *netlink.Handle, l netlink.Link) error {
		for _, p := range prefixes {
			a, err := netlink.ParseAddr(p)
			if err != nil {
				return fmt.Errorf("parsing %s: %w", p, err)
			}
			if err := nl.AddrAdd(l, a); err != nil {
				return fmt.Errorf("adding %s: %w", p, err)
			}
		}
		return nil
	})
}

func (h *Host) defaultRoute(gateway string) error {
	err := h.withNetlink(func(nl *netlink.Handle) error { return nl.RouteAdd(&netlink.Route{Gw: net.ParseIP(gateway)}) })
	if err != nil {
		return fmt.Errorf("adding the default route of %s: %w", h.Name, err)
	}
	return nil
}

func (h *Host) withLink(dev string, fn func(*netlink.Handle, netlink.Link) error) error {
	err := h.withNetlink(func(nl *netlink.Handle) error {
		l, err := nl.LinkByName(dev)
		if err != nil {
			return err
		}
		return fn(nl, l)
	})
	if err != nil {
		return fmt.Errorf("%s on %s: %w", dev, h.Name, err)
	}
	return nil
}

func (h *Host) withNetlink(fn func(*netlink.Handle) error) error {
	nl, err := netlink.NewHandleAt(netns.NsHandle(h.ns.Fd()), unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER)
	if err != nil {
		return fmt.Errorf("opening netlink: %w", err)
	}
	defer nl.Close()
	return fn(nl)
}
