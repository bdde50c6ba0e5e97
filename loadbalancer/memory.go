package loadbalancer

import (
	"net/netip"
	"time"
)

// Memory is which endpoint a client went to last, for another process to go on with.
type Memory struct {
	Client   netip.Addr
	Endpoint netip.AddrPort
	Used     time.Time
}

// Memories are those of all clients who have affinity now, in any order.
func (g *Group) Memories() []Memory {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	known := make([]Memory, 0, g.affinity.entries())
	for _, uses := range []map[netip.Addr]use{g.affinity.older, g.affinity.recent} {
		for client := range uses {
			if ep, used := g.affinity.lookup(client, now); ep != nil {
				known = append(known, Memory{client, ep.Addr, used})
			}
		}
	}
	return known
}

// Recall takes in what another process knew. A client of whom more is known already,
// and one whose endpoint is not among these, is left as it is; what is over by the
// timeout now is over. It takes half of the clients that a group may have at most.
func (g *Group) Recall(known []Memory) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	for _, m := range known {
		ep, client := g.byAddr[m.Endpoint], m.Client.Unmap()
		if g.affinity.timeout == 0 || ep == nil || !client.IsValid() || m.Used.After(now) || g.affinity.entries() >= maxClients/2 {
			continue
		}
		if have, _ := g.affinity.lookup(client, now); have == nil {
			g.affinity.turn(now)
			g.affinity.recent[client] = use{ep, m.Used}
		}
	}
}
