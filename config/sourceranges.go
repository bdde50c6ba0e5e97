package config

import (
	"fmt"
	"net/netip"
	"strings"

	utilnet "k8s.io/utils/net"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// readSourceRanges reads spec.loadBalancerSourceRanges, given the load balancer
// addresses that they are for. A range that cannot be read lets nobody in, and
// the others hold.
//
// A family in which there is no range is closed where the other has one that is
// not /0: whoever lists IPv4 ranges alone does not mean everyone to come by IPv6.
// (kube-proxy lets them.)
func (r *resolver) readSourceRanges(w *want, addresses []wantAddress) {
	allowed := map[service.Family][]netip.Prefix{}
	open := map[service.Family]bool{}
	limited := false
	for i, s := range w.svc.Spec.LoadBalancerSourceRanges {
		p, err := parseRange(s)
		switch f := service.FamilyOf(p.Addr()); {
		case err != nil:
			limited = true
			r.reportService(w, fieldPath{before: "spec.loadBalancerSourceRanges", index: i}, ReasonInvalidSourceRange,
				fmt.Sprintf("%q is not a range of addresses and lets nobody in", s), "write it as in 192.0.2.0/24")
		case p.Bits() == 0:
			open[f] = true
		default:
			limited = true
			allowed[f] = append(allowed[f], p)
		}
	}
	if !limited {
		return
	}
	w.sources = map[service.Family]service.SourceRanges{}
	for _, a := range addresses {
		f := service.FamilyOf(a.addr)
		if open[f] {
			continue
		}
		ranges := allowed[f]
		if len(ranges) == 0 && !w.sources[f].Limited {
			r.reportService(w, wholeField("spec.loadBalancerSourceRanges"), ReasonNobodyAllowed,
				fmt.Sprintf("has no %s range, so that nobody can come to the %s address %s", f, f, a.addr),
				fmt.Sprintf("list the %s ranges from which clients come, or %s if that is everyone", f, everyRange(f)))
		}
		if (service.SourceRanges{Limited: true, Allowed: ranges}).Admits(r.node.Primary[f]) {
			ranges = append(ranges, ownRanges(addresses, f)...)
		}
		w.sources[f] = service.SourceRanges{Limited: true, Allowed: service.Disjoint(ranges)}
	}
}

// ownRanges are load balancer addresses themselves. Where one is on an interface
// of the node, which may come in, the node's own packets have it as their source.
func ownRanges(addresses []wantAddress, f service.Family) []netip.Prefix {
	var own []netip.Prefix
	for _, a := range addresses {
		if service.FamilyOf(a.addr) == f {
			own = append(own, netip.PrefixFrom(a.addr, a.addr.BitLen()))
		}
	}
	return own
}

func everyRange(f service.Family) string {
	if f == service.IPv6 {
		return "::/0"
	}
	return "0.0.0.0/0"
}

// parseRange reads a range of addresses as Kubernetes' own components do; spaces
// around it and bits beyond its length do not matter. IPv4 addresses mapped into
// IPv6 are those IPv4 addresses.
func parseRange(s string) (netip.Prefix, error) {
	_, n, err := utilnet.ParseCIDRSloppy(strings.TrimSpace(s))
	if err != nil {
		return netip.Prefix{}, err // the caller says of what
	}
	a, ok := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	if !ok || bits < 0 {
		return netip.Prefix{}, fmt.Errorf("%q is not a range of addresses", s)
	}
	if a.Is4In6() && bits >= 96 {
		a, bits = a.Unmap(), bits-96
	}
	return netip.PrefixFrom(a, bits).Masked(), nil
}
