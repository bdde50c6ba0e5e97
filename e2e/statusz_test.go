package e2e

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
)

// statusz is what the tests look at in /statusz.
type statusz struct {
	Pending     bool
	Error       string
	Descriptors struct{ Total, Listeners, Traffic, Flows int }
	RuleHits    struct {
		Error          string
		GuardedPackets int
	}
	Ports []struct {
		Name, Affinity string
		Portals        []struct {
			Addr, State, Listener string
			Hits                  int
			Outside               *struct{ State string }
		}
		Endpoints []struct {
			Addr, Why          string
			Picked             bool
			Connections, Flows int
		}
	}
	Problems    []struct{ Object, Reason, Detail string }
	Connections []struct {
		Service, Client, Endpoint, State string
		Up, Down                         int
	}
	ConnectionsOpen int
	Flows           []struct {
		Service, Client, Endpoint string
		Up, Down                  struct{ Datagrams, Bytes int }
	}
	FlowsOpen int
}

func (p *proxy) statusz(t *testing.T) statusz {
	t.Helper()
	body, err := p.node.Get(t.Context(), statusURL)
	require.NoError(t, err)
	var s statusz
	require.NoError(t, json.Unmarshal([]byte(body), &s), "%s", body)
	return s
}

// TestStatuszListsConnectionsFlowsAndHits: each connection and each flow, and
// for each portal how often its rule was met.
func TestStatuszListsConnectionsFlowsAndHits(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		tcp := serveNamed(t, bed.Back, "tcp", 8080, "a")
		udp := serveNamed(t, bed.Back, "udp", 8080, "a")
		p := lead.start(t, bed.Node, manifest(changing(map[string][]string{"stream": tcp, "datagram": udp})))
		requireAnswers(t, bed.Client, target{"udp", "10.96.0.10:80"}, "a")
		requireAnswers(t, bed.Client, target{"tcp", "10.96.0.10:80"}, "a")
		requireAnswers(t, bed.Node, target{"tcp", "[fd96::10]:80"}, "a")
		eventually(t, func() bool { return p.statusz(t).ConnectionsOpen == 0 }, saying("an end of connections"))
		c, err := bed.Client.Dial(t.Context(), "tcp", "10.96.0.10:80")
		require.NoError(t, err)
		defer func() { assert.NoError(t, c.Close()) }()
		requireEcho(t, c, "", "a\n")
		requireEcho(t, c, "12345", "12345")

		var s statusz
		eventually(t, func() bool {
			s = p.statusz(t)
			return len(s.Connections) == 1 && s.Connections[0].Down == 7 && s.Descriptors.Traffic-s.Descriptors.Flows == 2
		}, saying("a connection that is listed"))
		listed := s.Connections[0]
		assert.Equal(t, "default/web:stream/TCP", listed.Service)
		assert.Equal(t, c.LocalAddr().String(), listed.Client)
		assert.Equal(t, tcp[0], listed.Endpoint)
		assert.Equal(t, "open", listed.State)
		assert.Equal(t, 5, listed.Up)
		require.NotEmpty(t, s.Flows)
		assert.Len(t, s.Flows, s.FlowsOpen)
		assert.Equal(t, s.FlowsOpen, s.Descriptors.Flows)
		assert.Equal(t, "default/web:datagram/UDP", s.Flows[0].Service)
		assert.Equal(t, udp[0], s.Flows[0].Endpoint)
		assert.Positive(t, s.Flows[0].Up.Datagrams)

		if lead.redirect == "none" {
			return
		}
		hits := func() map[string]int {
			all := make(map[string]int)
			s := p.statusz(t)
			require.Empty(t, s.RuleHits.Error)
			for _, port := range s.Ports {
				for _, portal := range port.Portals {
					all[port.Name+" "+portal.Addr] = portal.Hits
				}
			}
			return all
		}
		var got map[string]int
		eventually(t, func() bool { // they are read every few seconds
			got = hits()
			return got["default/web:stream/TCP 10.96.0.10:80"] >= 2 && got["default/web:stream/TCP [fd96::10]:80"] >= 1
		}, func() string { b, _ := json.Marshal(got); return "hits, got " + string(b) })
		assert.Positive(t, got["default/web:datagram/UDP 10.96.0.10:80"])
		assert.Zero(t, got["default/web:stream/TCP 10.10.2.1:30080"])
	})
}
