package nettest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
)

// NodeToBridged is the node's bridge that AddBridge makes.
const NodeToBridged = "cni0"

// AddBridge joins hosts to the node by a bridge, as the plugin "bridge" of CNI lays
// pods: 10.10.3.130 and up, fd10:3:1::2 and up, with the node's address on the bridge
// as their way to everywhere else, and with hairpins.
func (b *Bed) AddBridge(t testing.TB, hosts int) []*Host {
	t.Helper()
	require.NoError(t, b.Node.addBridge(NodeToBridged))
	require.NoError(t, b.Node.address(NodeToBridged, "10.10.3.129/25", "fd10:3:1::1/64"))
	var all []*Host
	for i := range hosts {
		h := newHost(t, fmt.Sprintf("bridged%d", i))
		h.addrs = addresses(fmt.Sprintf("10.10.3.%d", i+130), fmt.Sprintf("fd10:3:1::%d", i+2))
		require.NoError(t, h.prepare())
		port := fmt.Sprintf("port%d", i)
		require.NoError(t, link(b.Node, port, h))
		require.NoError(t, b.Node.withLink(port, func(nl *netlink.Handle, l netlink.Link) error {
			bridge, err := nl.LinkByName(NodeToBridged)
			if err != nil {
				return err
			}
			if err := nl.LinkSetMaster(l, bridge); err != nil {
				return err
			}
			return nl.LinkSetHairpin(l, true)
		}))
		require.NoError(t, h.address("eth0", h.prefixes(prefixLengths{25, 64})...))
		require.NoError(t, h.defaultRoutes("eth0", "10.10.3.129", "fd10:3:1::1"))
		all = append(all, h)
	}
	return all
}

func (h *Host) addBridge(name string) error {
	nl, err := netlink.NewHandleAt(h.ns)
	if err != nil {
		return fmt.Errorf("opening netlink on %s: %w", h.Name, err)
	}
	defer nl.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	if err := nl.LinkAdd(bridge); err != nil {
		return fmt.Errorf("adding the bridge %s on %s (needs a kernel with CONFIG_BRIDGE): %w", name, h.Name, err)
	}
	return nl.LinkSetUp(bridge)
}
