package node

import (
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// Read looks at the machine, in the network namespace of the calling thread.
func Read(o Options) (Facts, error) {
	hostname := o.Hostname
	if hostname == "" {
		var err error
		if hostname, err = os.Hostname(); err != nil {
			return Facts{}, fmt.Errorf("finding out the host name: %w", err)
		}
	}
	links, err := readLinks()
	if err != nil {
		return Facts{}, fmt.Errorf("finding out the node's addresses: %w", err)
	}
	return factsOf(o, hostname, links, outbound())
}

// readLinks lists the interfaces that are up.
func readLinks() ([]link, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err // Read says what was tried
	}
	var links []link
	for _, i := range interfaces {
		if i.Flags&net.FlagUp == 0 {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue // it went meanwhile
		}
		l := link{loopback: i.Flags&net.FlagLoopback != 0}
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok {
				if addr, ok := netip.AddrFromSlice(n.IP); ok {
					l.addrs = append(l.addrs, addr.Unmap())
				}
			}
		}
		links = append(links, l)
	}
	return links, nil
}

// outbound asks the system which address a packet to far away would leave
// with. Connecting a UDP socket looks up the route and sends nothing. The
// destinations are of ranges for documentation (RFC 5737, RFC 3849), so that
// no route but the default one is likely to lead there.
func outbound() map[service.Family]netip.Addr {
	found := map[service.Family]netip.Addr{}
	for family, far := range map[service.Family]string{
		service.IPv4: "203.0.113.1:9",
		service.IPv6: "[2001:db8:ffff::1]:9",
	} {
		conn, err := net.Dial("udp", far)
		if err != nil {
			continue // no route: the links' addresses will have to do
		}
		if at, ok := conn.LocalAddr().(*net.UDPAddr); ok {
			found[family] = at.AddrPort().Addr().Unmap()
		}
		_ = conn.Close() // it carried nothing
	}
	return found
}
