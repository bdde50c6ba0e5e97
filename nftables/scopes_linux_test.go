//go:build linux && !portable

package nftables

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// Traffic of pods, of the node and from outside goes where its scope leads, and
// nobody comes who may not, however pods are told: in the tracer and really.
func TestSemantics_trafficPolicies_scopes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.scopes(t)
	tracer := func() func(nettest.Packet) string { return newTracer(t, w.Bed, w.config.Listen).trace }
	var redirects []service.Redirect
	for _, p := range nettest.BothFamilies() {
		redirects = append(redirects, p.Scoped()...)
	}
	for name, pods := range nettest.LocalPods() {
		t.Log("pods are told by", name)
		w.Node.Do(t, func() { w.runner.SetLocalPods(pods) })
		w.sync(t, redirects)
		require.NoError(t, w.check(t))
		w.asked(t, tracer(), true)
	}
	w.runner.SetLocalPods(service.LocalPods{})
	w.sync(t, redirects)
	w.asked(t, tracer(), false)
	require.NoError(t, w.check(t))
	first := dump(t, w.Node)
	for range 3 { // to other ranges and sources and back, element by element
		w.runner.SetLocalPods(service.LocalPods{Ranges: []netip.Prefix{netip.MustParsePrefix("10.10.3.0/28")}})
		others := append([]service.Redirect(nil), redirects...)
		for i, r := range others {
			if others[i].Sources.Limited && r.Portal.Addr().Is4() {
				others[i].Sources.Allowed = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.7/32")}
			}
		}
		w.sync(t, others)
		require.NoError(t, w.check(t))
		w.runner.SetLocalPods(service.LocalPods{})
		w.sync(t, redirects)
		require.NoError(t, w.check(t))
	}
	assert.Equal(t, first, dump(t, w.Node))
}

// scopes serves what scoped redirects lead to and pass by.
func (w *world) scopes(t *testing.T) {
	t.Helper()
	for _, p := range nettest.BothFamilies() {
		w.listen(t, p.Listen+":10000", p.Listen+":10001")
		for end := 20; end < 30; end++ {
			w.Back.Own(t, netip.MustParseAddrPort(p.Portal(end, 80)).Addr().String())
			w.Back.ServeBoth(t, nettest.Passes, p.Portal(end, 80))
		}
	}
}

// asked sends what scoped redirects are for.
func (w *world) asked(t *testing.T, trace func(nettest.Packet) string, podsKnown bool) {
	t.Helper()
	for _, p := range nettest.BothFamilies() {
		for _, a := range p.ScopedAsks(podsKnown) {
			for _, from := range a.From {
				for _, proto := range []string{"TCP ", "UDP "} {
					packet := nettest.Sent(from, proto+a.Dst, a.Mark)
					assert.Equal(t, a.Want, trace(packet), "the rules say of %s", packet)
					assert.Equal(t, a.Want, w.Send(t, packet, a.Want), "really: %s", packet)
				}
			}
		}
	}
}
