package transparent

import (
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// Node is what Decider must be told of this node.
type Node struct {
	Name string
	// Pods say whose addresses are those of pods on this node.
	Pods service.LocalPods
	// Primary are the node's own addresses: the interface that has one is the uplink.
	Primary []netip.Addr
}

// Decider says for each dial whether it is to be made from the client's address.
// It is safe for concurrent use, and asks the kernel for the way to each address
// once a second at most.
type Decider struct {
	bridged bool
	known   atomic.Pointer[known]

	mu    sync.Mutex
	ways  map[netip.Addr]Way // as of asked
	asked time.Time
	ask   *routes
}

// known is a Node, with the endpoints on it.
type known struct {
	Node
	local   map[netip.Addr]bool
	uplinks map[string]bool
}

// NewDecider makes one that knows of no pod and no endpoint yet. Bridged says that
// replies are led to this node where client and endpoint are ports of one bridge.
func NewDecider(bridged bool) (*Decider, error) {
	ask, err := openRoutes()
	if err != nil {
		return nil, err
	}
	d := &Decider{bridged: bridged, ways: make(map[netip.Addr]Way), ask: ask}
	d.known.Store(&known{})
	return d, nil
}

// Close gives back what NewDecider has opened.
func (d *Decider) Close() { d.ask.close() }

// Set says what is known of this node, and what is served.
func (d *Decider) Set(n Node, ports []service.Port) {
	k := &known{Node: n, local: make(map[netip.Addr]bool), uplinks: linksOf(n.Primary)}
	for _, p := range ports {
		for _, list := range [][]service.Endpoint{p.Endpoints, p.Local} {
			for _, e := range list {
				if e.Node == n.Name && n.Name != "" {
					k.local[e.Addr.Addr().Unmap()] = true
				}
			}
		}
	}
	d.known.Store(k)
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.ways)
}

// ShowsClient says whether a dial to an endpoint is to be made from the client's
// address.
func (d *Decider) ShowsClient(client, endpoint netip.Addr) bool {
	return d.Dial(client, endpoint).ShowsClient()
}

// Dial is all that is known of a dial. The ways are looked up only where they
// decide.
func (d *Decider) Dial(client, endpoint netip.Addr) Dial {
	k := d.known.Load()
	dial := Dial{Client: client.Unmap(), Endpoint: endpoint.Unmap(), Bridged: d.bridged}
	dial.Local = k.local[dial.Endpoint]
	dial.Pod = k.Pods.Contains(dial.Client)
	if !dial.Local && !dial.Pod && k.Pods.Interface == "" {
		return dial
	}
	now := time.Now()
	dial.ToClient = d.way(dial.Client, k, now)
	dial.ToEndpoint = d.way(dial.Endpoint, k, now)
	if name := k.Pods.Interface; name != "" {
		begins, several := strings.CutSuffix(name, "*")
		dial.Pod = dial.ToClient.Link == name || several && strings.HasPrefix(dial.ToClient.Link, begins)
	}
	return dial
}

// way is the way to an address, as it was a second ago or later.
func (d *Decider) way(to netip.Addr, k *known, now time.Time) Way {
	const (
		fresh = time.Second
		most  = 10_000
	)
	d.mu.Lock()
	defer d.mu.Unlock()
	if now.Sub(d.asked) > fresh || len(d.ways) >= most {
		clear(d.ways)
		d.asked = now
	}
	w, there := d.ways[to]
	if !there {
		w = d.ask.way(to)
		w.Attached = w.Attached && !k.uplinks[w.Link]
		d.ways[to] = w
	}
	return w
}
