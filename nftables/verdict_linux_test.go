//go:build linux && !portable

package nftables

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// The tracer's verdict, from what the kernel lists, equals what becomes of
// real packets, for each kind of redirect, from everywhere.
func TestPacketsGoWhereTheRulesSay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var redirects []service.Redirect
	for _, p := range nettest.BothFamilies() {
		redirects = append(redirects, p.Redirects()...)
		w.listen(t, p.Listen+":10000", p.Listen+":10001")
		for _, end := range []int{10, 11, 12} {
			w.Back.Own(t, netip.MustParseAddrPort(p.Portal(end, 80)).Addr().String())
			w.Back.ServeBoth(t, nettest.Passes, p.Portal(end, 80), p.Portal(end, 81))
		}
		w.Node.ServeBoth(t, nettest.Passes, p.Listen+":9999", p.Listen+":65534", p.Listen+":65535", p.Node+":22", p.Node+":30080", p.Node+":30081",
			p.Loopback+":22", p.Loopback+":30080", p.Loopback+":30081")
	}
	w.sync(t, redirects)
	tr := newTracer(t, w.Bed, w.config.Listen)
	for _, p := range nettest.BothFamilies() {
		for _, a := range p.Asks() {
			for _, from := range a.From {
				for _, proto := range []string{"TCP ", "UDP "} {
					packet := nettest.Sent(from, proto+a.Dst, a.Mark)
					assert.Equal(t, a.Want, tr.trace(packet), "the rules say of %s", packet)
					assert.Equal(t, a.Want, w.Send(t, packet, a.Want), "really: %s", packet)
				}
			}
		}
	}
}

// The same for redirects and packets by chance, each state reached from the
// one before.
func TestPacketsGoWhereTheRulesSayByChance(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(t)
	for _, p := range nettest.BothFamilies() {
		w.listen(t, p.Listen+":10000", p.Listen+":10001")
		for end := range 4 {
			w.Back.Own(t, netip.MustParseAddrPort(p.Portal(end+1, 80)).Addr().String())
			w.Back.ServeBoth(t, nettest.Passes, p.Portal(end+1, 80))
		}
		w.Node.ServeBoth(t, nettest.Passes, p.Node+":80", p.Loopback+":80")
	}
	destination := func(p nettest.Parts) string {
		if n := r.IntN(6); n < 4 {
			return p.Portal(n+1, 80)
		}
		return []string{p.Node, p.Loopback}[r.IntN(2)] + ":80"
	}
	chance := func(of ...string) string { return of[r.IntN(len(of))] }
	for range 20 {
		redirects := make(map[string]service.Redirect)
		for range r.IntN(20) {
			p := nettest.BothFamilies()[r.IntN(2)]
			portal := chance("TCP ", "UDP ") + destination(p)
			switch r.IntN(8) {
			case 0:
				redirects[portal] = nettest.Redirect("s", portal, service.Drop)
			case 1, 2:
				redirects[portal] = nettest.Redirect("s", portal, service.Refuse)
			default:
				redirects[portal] = nettest.Redirect("s", portal, service.ToListener, p.Listen+chance(":10000", ":10001"))
			}
		}
		var state []service.Redirect
		for _, one := range redirects {
			state = append(state, one)
		}
		w.sync(t, state)
		tr := newTracer(t, w.Bed, w.config.Listen)
		for range 15 {
			p := nettest.BothFamilies()[r.IntN(2)]
			packet := nettest.Sent(chance("client", "pod", "node"), chance("TCP ", "UDP ")+destination(p))
			if packet.Dst.Addr().IsLoopback() {
				packet.From = "node"
			}
			if packet.From == "node" && r.IntN(3) == 0 {
				packet.Mark = 0x4000000
			}
			want := tr.trace(packet)
			assert.Equal(t, want, w.Send(t, packet, want), "%s, with %v", packet, state)
		}
		if t.Failed() {
			return
		}
	}
}
