package transparent

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// routes asks the kernel for ways.
type routes struct{ netlink *netlink.Handle }

// openRoutes is closed by its caller.
func openRoutes() (*routes, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening netlink to ask for routes: %w", err)
	}
	return &routes{h}, nil
}

func (r *routes) close() { r.netlink.Close() }

// way is zero where none leads there.
func (r *routes) way(to netip.Addr) Way {
	found, err := r.netlink.RouteGet(to.AsSlice())
	if err != nil || len(found) == 0 {
		return Way{}
	}
	route := found[0]
	if route.Type == unix.RTN_LOCAL {
		return Way{Here: true}
	}
	link, err := r.netlink.LinkByIndex(route.LinkIndex)
	if err != nil {
		return Way{}
	}
	attached := route.Type == unix.RTN_UNICAST && route.Gw == nil && route.Via == nil && len(route.MultiPath) == 0
	return Way{Attached: attached, Link: link.Attrs().Name}
}

// linksOf are the names of the interfaces that have addresses.
func linksOf(addrs []netip.Addr) map[string]bool {
	names := make(map[string]bool)
	all, err := net.Interfaces()
	if err != nil {
		return names
	}
	wanted := make(map[netip.Addr]bool)
	for _, a := range addrs {
		wanted[a] = true
	}
	for _, i := range all {
		has, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, a := range has {
			if n, ok := a.(*net.IPNet); ok {
				if addr, ok := netip.AddrFromSlice(n.IP); ok && wanted[addr.Unmap()] {
					names[i.Name] = true
				}
			}
		}
	}
	return names
}
