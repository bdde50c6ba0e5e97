package transparent

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTransparent_decision(t *testing.T) {
	t.Parallel()
	var (
		here   = Way{Here: true}
		pod2   = Way{Attached: true, Link: "veth2"}
		pod3   = Way{Attached: true, Link: "veth3"}
		bridge = Way{Attached: true, Link: "cni0"}
		beyond = Way{Link: "eth0"}
	)
	for name, tt := range map[string]struct {
		client, endpoint     string
		pod, local, bridged  bool
		toClient, toEndpoint Way
		want                 bool
	}{
		"pod to another node":                   {client: "10.0.1.2", endpoint: "10.0.2.2", pod: true, toClient: pod2, toEndpoint: beyond, want: true},
		"pod to this node":                      {client: "10.0.1.2", endpoint: "10.0.1.3", pod: true, local: true, toClient: pod2, toEndpoint: pod3, want: true},
		"pod to this node, which nobody said":   {client: "10.0.1.2", endpoint: "10.0.1.3", pod: true, toClient: pod2, toEndpoint: pod3, want: true},
		"pod of another node to another node":   {client: "10.0.3.2", endpoint: "10.0.2.2", pod: true, toClient: beyond, toEndpoint: beyond},
		"pod of another node to this node":      {client: "10.0.3.2", endpoint: "10.0.1.3", pod: true, local: true, toClient: beyond, toEndpoint: pod3, want: true},
		"outside to this node":                  {client: "192.0.2.1", endpoint: "10.0.1.3", local: true, toClient: beyond, toEndpoint: pod3, want: true},
		"outside to another node":               {client: "192.0.2.1", endpoint: "10.0.2.2", toClient: beyond, toEndpoint: beyond},
		"neighbour, no pod, to another node":    {client: "192.0.2.1", endpoint: "10.0.2.2", toClient: pod2, toEndpoint: beyond},
		"outside to this node past its routing": {client: "192.0.2.1", endpoint: "10.0.1.3", local: true, toClient: beyond, toEndpoint: beyond},
		"hairpin":                               {client: "10.0.1.2", endpoint: "10.0.1.2", pod: true, local: true, bridged: true, toClient: bridge, toEndpoint: bridge},
		"one bridge":                            {client: "10.0.1.2", endpoint: "10.0.1.3", pod: true, local: true, toClient: bridge, toEndpoint: bridge},
		"one bridge, with rules":                {client: "10.0.1.2", endpoint: "10.0.1.3", pod: true, local: true, bridged: true, toClient: bridge, toEndpoint: bridge, want: true},
		"this node":                             {client: "10.0.1.1", endpoint: "10.0.1.3", local: true, toClient: here, toEndpoint: pod3},
		"loopback":                              {client: "127.0.0.1", endpoint: "10.0.1.3", local: true, toClient: beyond, toEndpoint: pod3},
		"loopback, IPv6":                        {client: "::1", endpoint: "fd00::3", local: true, toClient: beyond, toEndpoint: pod3},
		"link-local":                            {client: "fe80::1", endpoint: "fd00::3", local: true, toClient: beyond, toEndpoint: pod3},
		"IPv6":                                  {client: "fd00::2", endpoint: "fd00::3", local: true, toClient: beyond, toEndpoint: pod3, want: true},
		"other family":                          {client: "10.0.1.2", endpoint: "fd00::3", pod: true, local: true, toClient: pod2, toEndpoint: pod3},
		"host network":                          {client: "10.0.1.2", endpoint: "10.0.1.1", pod: true, local: true, toClient: pod2, toEndpoint: here},
		"nothing is known":                      {client: "10.0.1.2", endpoint: "10.0.1.3"},
		"no way is known":                       {client: "10.0.1.2", endpoint: "10.0.1.3", pod: true, local: true},
	} {
		d := Dial{
			Client: netip.MustParseAddr(tt.client), Endpoint: netip.MustParseAddr(tt.endpoint), Pod: tt.pod, Local: tt.local,
			Bridged: tt.bridged, ToClient: tt.toClient, ToEndpoint: tt.toEndpoint,
		}
		assert.Equal(t, tt.want, d.ShowsClient(), name)
	}
	assert.False(t, Dial{}.ShowsClient())
}
