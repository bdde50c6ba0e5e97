package loadbalancer_test

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/userspace-proxy/userspace-proxy/loadbalancer"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// A connection dials what it picks until one endpoint answers. The affinity of
// its client follows.
func ExampleGroup() {
	g := loadbalancer.NewGroup(time.Now)
	g.Update([]service.Endpoint{
		{Addr: netip.MustParseAddrPort("10.0.0.1:80")},
		{Addr: netip.MustParseAddrPort("10.0.0.2:80")},
	}, 3*time.Hour)
	dial := func(addr netip.AddrPort) bool { return addr.Addr().String() != "10.0.0.1" }

	client := netip.MustParseAddr("192.0.2.7")
	for range 2 {
		var tried []netip.AddrPort
		for {
			addr, ok := g.Pick(client, tried)
			if !ok {
				fmt.Println("no endpoint answers")
				break
			}
			if dial(addr) {
				g.Succeeded(client, addr)
				fmt.Println(addr, "connected")
				break
			}
			g.Failed(addr)
			fmt.Println(addr, "failed")
			tried = append(tried, addr)
		}
	}
	// Output:
	// 10.0.0.1:80 failed
	// 10.0.0.2:80 connected
	// 10.0.0.2:80 connected
}
