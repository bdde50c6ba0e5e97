//go:build linux && !portable

package iptables

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// ask is what a table says of packets to one address over both protocols.
type ask struct {
	from []string
	dst  string
	mark uint32
	want string
}

// In the tables each family has the same addresses, with these parts.
type parts4or6 struct {
	family                          service.Family
	listen, node, loopback, portals string // the last lacks its end
}

func bothFamilies() []parts4or6 {
	return []parts4or6{
		{service.IPv4, "169.254.77.1", "10.10.2.1", "127.0.0.1", "10.96.0."},
		{service.IPv6, "[fd77::1]", "[fd10:2::1]", "[::1]", "[fd96::"},
	}
}

// portal is an address of a Service: its end and port.
func (p parts4or6) portal(end, port int) string {
	if p.family == service.IPv6 {
		return fmt.Sprintf("%s%d]:%d", p.portals, end, port)
	}
	return fmt.Sprintf("%s%d:%d", p.portals, end, port)
}

func (p parts4or6) redirects() []service.Redirect {
	var all []service.Redirect
	for _, proto := range []string{"TCP ", "UDP "} {
		all = append(all,
			redirect("web", proto+p.portal(10, 80), service.ToListener, p.listen+":10000"),
			redirect("none", proto+p.portal(11, 80), service.Refuse),
			redirect("away", proto+p.portal(12, 80), service.Drop),
			redirect("web", proto+p.node+":30080", service.ToListener, p.listen+":10000"),
			redirect("none", proto+p.node+":30081", service.Refuse),
			redirect("web", proto+p.loopback+":30080", service.ToListener, p.listen+":10000"),
			redirect("none", proto+p.loopback+":30081", service.Refuse),
			redirect("away", proto+p.loopback+":30082", service.Drop),
		)
	}
	return all
}

func (p parts4or6) asks() []ask {
	everyone, node := []string{"client", "pod", "node"}, []string{"node"}
	const own = 0x4000000
	toListener := "listener " + p.listen + ":10000"
	return []ask{
		{everyone, p.portal(10, 80), 0, toListener},
		{everyone, p.portal(11, 80), 0, refused},
		{everyone, p.portal(12, 80), 0, dropped},
		{everyone, p.portal(10, 81), 0, passes},
		{everyone, p.node + ":30080", 0, toListener},
		{everyone, p.node + ":30081", 0, refused},
		{everyone, p.node + ":22", 0, passes},
		{node, p.loopback + ":30080", 0, toListener},
		{node, p.loopback + ":30081", 0, refused},
		{node, p.loopback + ":30082", 0, dropped},
		{node, p.loopback + ":22", 0, passes},

		// Listeners answer nobody who comes past a portal, but their address
		// is an address like others outside their range.
		{everyone, p.listen + ":10000", 0, refused},
		{everyone, p.listen + ":10001", 0, refused},
		{everyone, p.listen + ":9999", 0, passes},
		{everyone, p.listen + ":65534", 0, passes},
		{everyone, p.listen + ":65535", 0, passes},
		{node, p.listen + ":10000", own, refused},

		// Own dials, whatever other bits they carry, go to endpoints.
		{node, p.portal(10, 80), own, passes},
		{node, p.portal(11, 80), own | 1, passes},
		{node, p.portal(12, 80), own, passes},
		{node, p.portal(10, 80), 1, toListener},
		{node, p.node + ":30080", own, passes},
		{node, p.node + ":30081", own, passes},
		{node, p.loopback + ":30080", own, passes},
		{node, p.loopback + ":30081", own, passes},
	}
}

// The tracer's verdict, from what the kernel lists, equals what becomes of
// real packets, for each kind of redirect, from everywhere; first in a short
// list, then in trees.
func TestPacketsGoWhereTheRulesSay(t *testing.T) {
	eachKind(t, func(t *testing.T, k Kind) {
		w := newWorld(t, k)
		var redirects []service.Redirect
		for _, p := range bothFamilies() {
			redirects = append(redirects, p.redirects()...)
			w.listen(t, p.listen+":10000", p.listen+":10001")
			for _, end := range []int{10, 11, 12} {
				own(t, w.Back, netip.MustParseAddrPort(p.portal(end, 80)).Addr().String())
				serve(t, w.Back, passes, p.portal(end, 80), p.portal(end, 81))
			}
			serve(t, w.Node, passes, p.listen+":9999", p.listen+":65534", p.listen+":65535",
				p.node+":22", p.node+":30080", p.node+":30081",
				p.loopback+":22", p.loopback+":30080", p.loopback+":30081")
		}
		for _, more := range [][]service.Redirect{nil, crowd()} {
			w.sync(t, append(more, redirects...))
			tr := w.inKernel(t)
			for _, p := range bothFamilies() {
				for _, a := range p.asks() {
					for _, from := range a.from {
						for _, proto := range []string{"TCP ", "UDP "} {
							packet := sent(from, proto+a.dst, a.mark)
							assert.Equal(t, a.want, tr.trace(packet), "the rules say of %s", packet)
							assert.Equal(t, a.want, w.send(t, packet, a.want), "really: %s", packet)
						}
					}
				}
			}
		}
	})
}

// crowd are so many portals around those of the tables that these stand as
// deep in the trees as can be.
func crowd() []service.Redirect {
	asked := []uint16{80, 81, 30080, 30081, 30082}
	var all []service.Redirect
	for _, p := range bothFamilies() {
		for _, addr := range []string{p.portal(10, 80), p.portal(11, 80), p.portal(12, 80), p.node + ":30080", p.loopback + ":30080"} {
			at := netip.MustParseAddrPort(addr)
			for port := uint16(24); port < 60000; port++ {
				if near := port < 90 || port > 30050 && port < 30100; !near && port%500 != 0 || slices.Contains(asked, port) {
					continue
				}
				for _, proto := range []service.Protocol{service.TCP, service.UDP} {
					r := redirect("crowd", "TCP "+addr, service.ToListener, p.listen+":10001")
					r.Portal, r.Protocol = netip.AddrPortFrom(at.Addr(), port), proto
					all = append(all, r)
				}
			}
		}
	}
	return all
}

// The same for redirects and packets by chance, each state reached from the
// one before.
func TestPacketsGoWhereTheRulesSayByChance(t *testing.T) {
	eachKind(t, func(t *testing.T, k Kind) {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		r := rand.New(rand.NewPCG(seed, 0))
		w := newWorld(t, k)
		for _, p := range bothFamilies() {
			w.listen(t, p.listen+":10000", p.listen+":10001")
			for end := range 4 {
				own(t, w.Back, netip.MustParseAddrPort(p.portal(end+1, 80)).Addr().String())
				serve(t, w.Back, passes, p.portal(end+1, 80))
			}
			serve(t, w.Node, passes, p.node+":80", p.loopback+":80")
		}
		destination := func(p parts4or6) string {
			if n := r.IntN(6); n < 4 {
				return p.portal(n+1, 80)
			}
			return []string{p.node, p.loopback}[r.IntN(2)] + ":80"
		}
		chance := func(of ...string) string { return of[r.IntN(len(of))] }
		for range 10 {
			redirects := make(map[string]service.Redirect)
			for range r.IntN(20) {
				p := bothFamilies()[r.IntN(2)]
				portal := chance("TCP ", "UDP ") + destination(p)
				switch r.IntN(8) {
				case 0:
					redirects[portal] = redirect("s", portal, service.Drop)
				case 1, 2:
					redirects[portal] = redirect("s", portal, service.Refuse)
				default:
					redirects[portal] = redirect("s", portal, service.ToListener, p.listen+chance(":10000", ":10001"))
				}
			}
			var state []service.Redirect
			for _, one := range redirects {
				state = append(state, one)
			}
			others := clusterIPs(service.IPv4, 10+r.IntN(100))
			for i := range others {
				low := others[i].Portal.Addr().As4()
				others[i].Portal = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 97, low[2], low[3]}), 80)
			}
			w.sync(t, append(others, state...))
			tr := w.inKernel(t)
			for range 15 {
				p := bothFamilies()[r.IntN(2)]
				packet := sent(chance("client", "pod", "node"), chance("TCP ", "UDP ")+destination(p))
				if packet.dst.Addr().IsLoopback() {
					packet.from = "node"
				}
				if packet.from == "node" && r.IntN(3) == 0 {
					packet.mark = 0x4000000
				}
				want := tr.trace(packet)
				assert.Equal(t, want, w.send(t, packet, want), "%s, with %v", packet, state)
			}
			if t.Failed() {
				return
			}
		}
	})
}
