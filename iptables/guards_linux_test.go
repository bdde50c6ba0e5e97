//go:build linux && !portable

package iptables

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// Source ranges could be walked round by talking to the proxy's own port.
func TestCase46_ListenerPortsAnswerOnlyTranslatedTraffic(t *testing.T) {
	eachKind(t, func(t *testing.T, k Kind) { guarded(t, k, false) })
}

// After a crash, rules led to a port that a stranger had taken: whoever takes
// one is guarded, and the next start's first step leads elsewhere.
func TestCase53_StrangerInThePortRangeIsGuardedAndRulesLeaveHim(t *testing.T) {
	eachKind(t, func(t *testing.T, k Kind) { guarded(t, k, true) })
}

func guarded(t *testing.T, k Kind, crash bool) {
	t.Helper()
	w := newWorld(t, k)
	for _, p := range nettest.BothFamilies() {
		w.sync(t, p.Redirects())
		served := p.Listen + ":10000"
		w.listen(t, served)
		if crash { // the listener at 10000 is a stranger's now, and so is one at an unused port
			served = p.Listen + ":29999"
			w.listen(t, served, p.Listen+":20000")
			w.restart(t)
			w.sync(t, []service.Redirect{
				nettest.Redirect("web", "TCP "+p.Portal(10, 80), service.ToListener, served),
				nettest.Redirect("web", "UDP "+p.Portal(10, 80), service.ToListener, served),
			})
		}
		for _, from := range []string{"client", "pod", "node"} {
			for _, proto := range []string{"TCP ", "UDP "} {
				for _, port := range []string{":10000", ":20000", ":29999"} {
					got := w.Send(t, nettest.Sent(from, proto+p.Listen+port), nettest.Refused)
					assert.Equal(t, nettest.Refused, got, "%s%s%s from %s", proto, p.Listen, port, from)
				}
				got := w.Send(t, nettest.Sent(from, proto+p.Portal(10, 80)), "")
				assert.Equal(t, "listener "+served, got, "%sby the portal from %s", proto, from)
			}
		}
	}
}

// The guard does not cut the connections that the node itself opens from an
// address and port that it guards: it looks at their replies as well.
func TestCase46_OwnConnectionsFromGuardedPortsGetTheirReplies(t *testing.T) {
	eachKind(t, func(t *testing.T, k Kind) {
		w := newWorld(t, k)
		w.sync(t, nettest.Mixed())
		for _, p := range nettest.BothFamilies() {
			server := w.Node.Addr(p.Family)
			w.Node.ServeBoth(t, "server", netip.AddrPortFrom(server, 7).String())
			for _, proto := range []string{"TCP ", "UDP "} {
				got := w.SendFrom(t, p.Listen+":15000", nettest.Sent("node", proto+netip.AddrPortFrom(server, 7).String()), "")
				assert.Equal(t, "server", got, "%sfrom %s", proto, p.Listen)
			}
		}
	})
}

// Where the listening address is the node's, whoever else listens there stays
// reachable: the kubelet's port lies in the default range.
func TestCase46_SharedListeningAddressGuardsListenersAlone(t *testing.T) {
	eachKind(t, func(t *testing.T, k Kind) {
		w := newWorld(t, k)
		p := nettest.BothFamilies()[0]
		w.config = patient(Config{Kind: k, Listen: map[service.Family]netip.Addr{p.Family: netip.MustParseAddr(p.Node)}, SharedListen: true})
		w.restart(t)
		w.listen(t, p.Node+":10000")
		w.Node.ServeBoth(t, nettest.Passes, p.Node+":10250")
		for range 2 {
			w.sync(t, []service.Redirect{
				nettest.Redirect("web", "TCP "+p.Portal(10, 80), service.ToListener, p.Node+":10000"),
				nettest.Redirect("web", "UDP "+p.Portal(10, 80), service.ToListener, p.Node+":10000"),
			})
			tr := w.inKernel(t)
			for _, from := range []string{"client", "pod", "node"} {
				for _, proto := range []string{"TCP ", "UDP "} {
					for dst, want := range map[string]string{
						p.Portal(10, 80):  "listener " + p.Node + ":10000",
						p.Node + ":10000": nettest.Refused,
						p.Node + ":10250": nettest.Passes,
					} {
						packet := nettest.Sent(from, proto+dst)
						assert.Equal(t, want, tr.trace(packet), "the rules say of %s", packet)
						assert.Equal(t, want, w.Send(t, packet, want), "really: %s", packet)
					}
				}
			}
			w.sync(t, nil)
		}
	})
}
