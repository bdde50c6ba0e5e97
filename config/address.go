package config

import (
	"fmt"
	"net/netip"
	"strconv"

	utilnet "k8s.io/utils/net"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// parseAddr reads an address as Kubernetes' own components do: leading zeros
// are decimal, and an IPv4 address mapped into IPv6 is that IPv4 address.
func parseAddr(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil {
		var ok bool
		if a, ok = netip.AddrFromSlice(utilnet.ParseIPSloppy(s)); !ok {
			return netip.Addr{}, fmt.Errorf("%q is not an IP address", s)
		}
	}
	if a.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("%q has a zone, which means something on one machine only", s)
	}
	return a.Unmap(), nil
}

// unfit names the kind of an address at which there can be neither a portal
// nor an endpoint; it is empty for all others. Loopback is unfit unless it is
// allowed: it means another machine on every node, and on this one it is where
// daemons listen that trust whoever reaches them.
func unfit(a netip.Addr, loopbackAllowed bool) string {
	switch {
	case a.IsUnspecified() || a.Is4() && a.As4()[0] == 0: // connecting to 0.0.0.0 reaches the node itself
		return "unspecified"
	case a.IsMulticast():
		return "multicast"
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "broadcast"
	case a.IsLinkLocalUnicast(): // where clouds serve a machine's credentials
		return "link-local"
	case a.IsLoopback() && !loopbackAllowed:
		return "loopback"
	}
	return ""
}

// other is the other address family.
func other(f service.Family) service.Family {
	if f == service.IPv4 {
		return service.IPv6
	}
	return service.IPv4
}

// fieldPath is a field of an object. Most are never printed, so it is only
// put together when it is.
type fieldPath struct {
	before string
	index  int
	after  string
}

// String is the field as people find it: "spec.ports[1].nodePort".
func (f fieldPath) String() string {
	if f.index < 0 {
		return f.before
	}
	return f.before + "[" + strconv.Itoa(f.index) + "]" + f.after
}

// wholeField is a field that is in no list.
func wholeField(name string) fieldPath { return fieldPath{before: name, index: -1} }

// portField is a field of the i-th of a Service's ports.
func portField(i int, name string) fieldPath { return fieldPath{"spec.ports", i, "." + name} }
