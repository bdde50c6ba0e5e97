package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/utils/net"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// localDetection are the flags that say how traffic of pods on this node is told
// from what comes from outside. The names and meanings are kube-proxy's.
type localDetection struct {
	mode            string
	clusterCIDR     string
	bridge          string
	interfacePrefix string
}

// The modes.
const (
	detectClusterCIDR     = "ClusterCIDR"
	detectNodeCIDR        = "NodeCIDR"
	detectBridge          = "BridgeInterface"
	detectInterfacePrefix = "InterfaceNamePrefix"
)

func (d *localDetection) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&d.mode, "detect-local-mode", "", "tell traffic of this node's pods from what comes from outside, for Services with externalTrafficPolicy Local, in this `way`: ClusterCIDR, which is by --cluster-cidr and the default; NodeCIDR, by the podCIDRs of its Node, for which the start waits up to five minutes; BridgeInterface or InterfaceNamePrefix, by the interface that pods are behind")
	fs.StringVar(&d.clusterCIDR, "cluster-cidr", "", "the `range` that pods have addresses in, or one of each family, comma-separated")
	fs.StringVar(&d.bridge, "pod-bridge-interface", "", "the `name` of the bridge that pods are behind")
	fs.StringVar(&d.interfacePrefix, "pod-interface-name-prefix", "", "the `beginning` of the names of the interfaces that pods are behind")
}

// complete is what the flags come to. The ranges of NodeCIDR are the Node's to
// tell.
func (d *localDetection) complete(c *checks) service.LocalPods {
	var pods service.LocalPods
	ranges, err := parseClusterCIDR(d.clusterCIDR)
	c.check("--cluster-cidr", err)
	switch cmp.Or(d.mode, detectClusterCIDR) {
	case detectClusterCIDR:
		pods.Ranges = ranges // none: as in kube-proxy, no pods are told from others
	case detectNodeCIDR:
	case detectBridge:
		c.check("--pod-bridge-interface", checkInterface(d.bridge, "--detect-local-mode=BridgeInterface needs the bridge's name"))
		pods.Interface = d.bridge
	case detectInterfacePrefix:
		c.check("--pod-interface-name-prefix", checkInterface(d.interfacePrefix, "--detect-local-mode=InterfaceNamePrefix needs the beginning of the names"))
		pods.Interface = d.interfacePrefix + "*"
	default:
		c.check("--detect-local-mode", fmt.Errorf("must be ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix, got %q", d.mode))
	}
	return pods
}

// parseClusterCIDR reads a range, or one of each family.
func parseClusterCIDR(s string) ([]netip.Prefix, error) {
	if strings.TrimSpace(s) == "" {
		return nil, nil
	}
	var ranges []netip.Prefix
	for part := range strings.SplitSeq(s, ",") {
		p, err := podRange(part)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Addr().Is4() == p.Addr().Is4() }) {
			return nil, errors.New("must be one range, or one of each family like 10.244.0.0/16,fd00:10:244::/48")
		}
		ranges = append(ranges, p)
	}
	return service.Disjoint(ranges), nil
}

// podRange reads a range of pods' addresses.
func podRange(s string) (netip.Prefix, error) {
	_, n, err := utilnet.ParseCIDRSloppy(strings.TrimSpace(s))
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is not a range of addresses like 10.244.0.0/16", s)
	}
	addr, _ := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	if addr.Is4In6() && bits >= 96 {
		addr, bits = addr.Unmap(), bits-96
	}
	if bits == 0 {
		return netip.Prefix{}, fmt.Errorf("%q has every address in it, and pods cannot", s)
	}
	return netip.PrefixFrom(addr, bits).Masked(), nil
}

// checkInterface says what is wrong with the name of an interface, or the beginning
// of one.
func checkInterface(name, needed string) error {
	switch {
	case name == "":
		return errors.New(needed)
	case len(name) > 15 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:") != "":
		return fmt.Errorf("%q is no interface's name: it has at most 15 letters, digits, and .:-_", name)
	}
	return nil
}

// nodeLacks is what must be waited for in a Node, or where there is none (nil);
// empty for nothing. Without anything to wait for it is nil itself.
func (o *options) nodeLacks() func(*corev1.Node) string {
	if o.local.mode != detectNodeCIDR {
		return nil
	}
	return func(n *corev1.Node) string {
		_, unknown := o.localPods(n)
		return unknown
	}
}

// localPods is how this node's pods are told, given its Node as an API server has
// it, or nil; and why they cannot be, where that is so.
func (o *options) localPods(n *corev1.Node) (pods service.LocalPods, unknown string) {
	if o.local.mode != detectNodeCIDR {
		return o.meant.localPods, ""
	}
	if n == nil {
		return pods, "--detect-local-mode is NodeCIDR, and no API server has told of the Node of this machine"
	}
	var ranges []netip.Prefix
	for _, s := range podCIDRsOf(n) {
		if s == "" {
			continue
		}
		p, err := podRange(s)
		if err != nil {
			return pods, "--detect-local-mode is NodeCIDR, and of the Node's podCIDRs " + err.Error()
		}
		ranges = append(ranges, p)
	}
	if len(ranges) == 0 {
		return pods, "--detect-local-mode is NodeCIDR, and the Node of this machine has no podCIDR"
	}
	return service.LocalPods{Ranges: service.Disjoint(ranges)}, ""
}
