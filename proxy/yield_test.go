package proxy

import (
	"context"
	"encoding/json"
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// What the process knew that has yielded comes as JSON. What it served is served on
// until every source has told what there is, and not longer.
func TestRecall_servesOnUntilAllIsKnown(t *testing.T) {
	t.Parallel()
	named := func(name, portal string, f service.Family) service.Port {
		addr := netip.MustParseAddrPort(portal)
		return service.Port{
			Key:      service.Key{PortName: service.PortName{Namespace: "default", Name: name, Port: "http", Protocol: service.TCP}, Family: f},
			Source:   "api",
			Portals:  []service.Portal{{Kind: service.LoadBalancer, Addr: addr}},
			Affinity: time.Hour, Endpoints: []service.Endpoint{{Addr: netip.MustParseAddrPort("127.0.0.1:1"), Node: "node-a", Pod: "pod"}},
			Unused: []service.UnusedEndpoint{{Endpoint: service.Endpoint{Addr: netip.MustParseAddrPort("127.0.0.1:2")}, Why: "not ready"}},
			Local:  []service.Endpoint{{Addr: netip.MustParseAddrPort("127.0.0.1:1")}}, ExternalLocal: true, InternalLocal: true, MaxConnections: 7,
			Sources: service.SourceRanges{Limited: true, Allowed: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}},
		}
	}
	before := named("before", "198.51.100.1:80", service.IPv4)
	next := named("next", "198.51.100.2:80", service.IPv4)
	moved := named("moved", "198.51.100.3:80", service.IPv4)
	elsewhere := named("elsewhere", "198.51.100.3:80", service.IPv4)
	other := named("before", "[2001:db8::1]:80", service.IPv6)
	proxier := func() (*Proxier, *recorder) {
		log := logrus.New()
		log.SetOutput(io.Discard)
		r := &recorder{}
		c := Config{Log: log, Rules: r, Listen: map[service.Family]netip.Addr{service.IPv4: ownAddr()}, MinSyncPeriod: time.Millisecond}
		p, err := New(c)
		require.NoError(t, err)
		t.Cleanup(p.Close)
		return p, r
	}
	reconcile := func(p *Proxier) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.Reconcile(ctx)
		}()
		return func() {
			cancel()
			<-done
		}
	}
	done := func(p *Proxier) {
		require.Eventually(t, func() bool { return !p.Progress().Pending }, patience, time.Millisecond)
	}
	led := func(r *recorder) map[string]bool {
		redirects, _ := r.state()
		all := make(map[string]bool)
		for _, d := range redirects {
			all[d.Service.Name+" "+d.Portal.String()] = true
		}
		return all
	}

	first, _ := proxier()
	stop := reconcile(first)
	first.Update([]service.Port{before, moved}, true)
	done(first)
	_, picked := first.ports[before.Key].group.Pick(netip.MustParseAddr("192.0.2.1"), nil)
	require.True(t, picked)
	stop()
	text, err := json.Marshal(first.Yield())
	require.NoError(t, err)
	var known Memory
	require.NoError(t, json.Unmarshal(text, &known))
	assert.Equal(t, []service.Port{before, moved}, known.Served)
	require.Len(t, known.Affinity[before.String()], 1)

	second, r := proxier()
	known.Served = append(known.Served, other)
	second.Recall(known)
	assert.Equal(t, Memory{known.Served[:2], known.Ports, known.Affinity}, second.Yield(), "a third would know as much")
	stop = reconcile(second)
	defer stop()
	second.Update([]service.Port{next, elsewhere}, false)
	done(second)
	assert.Equal(t, map[string]bool{"next 198.51.100.2:80": true, "elsewhere 198.51.100.3:80": true, "before 198.51.100.1:80": true}, led(r))
	assert.Equal(t, 1, second.ports[before.Key].group.AffinityEntries())
	second.Update([]service.Port{next}, true)
	done(second)
	assert.Equal(t, map[string]bool{"next 198.51.100.2:80": true}, led(r))
	second.Update(nil, false)
	done(second)
	assert.Equal(t, map[string]bool{"next 198.51.100.2:80": true}, led(r), "what was recalled is over")
}

func TestMemory_FitsBeside(t *testing.T) {
	t.Parallel()
	one := service.Port{Key: service.Key{PortName: service.PortName{Protocol: service.TCP}, Family: service.IPv4}}
	one.Portals = []service.Portal{{Kind: service.ClusterIP}}
	both := one
	both.ExternalLocal = true // with a node port it has a listener for each kind of traffic
	both.Portals = append(both.Portals, service.Portal{Kind: service.NodePort})
	datagrams := one
	datagrams.Protocol = service.UDP
	known := Memory{Served: []service.Port{one, both, datagrams}}
	require.NoError(t, known.FitsBeside(service.PortRange{First: 1, Last: 6}))
	known.Ports = service.PortRange{First: 6, Last: 9}
	require.NoError(t, known.FitsBeside(service.PortRange{First: 1, Last: 5}), "another range")
	known.Ports.First = 5
	require.EqualError(t, known.FitsBeside(service.PortRange{First: 1, Last: 5}),
		"3 listeners stand for TCP by IPv4, and 1-5 has no room for as many beside them: give a wider --proxy-port-range, or start without --takeover")
}
