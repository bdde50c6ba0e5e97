package proxy

import (
	"slices"

	"github.com/userspace-proxy/userspace-proxy/loadbalancer"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// Memory is what the next process on this node is to know.
type Memory struct {
	// Served is what was served: the next process serves it too until every source
	// has told it what there is.
	Served []service.Port
	// Affinity is which endpoint the clients of each service port went to last.
	Affinity map[string][]loadbalancer.Memory
}

// Yield makes room for another process on this node, which will have the rules lead
// clients to listeners of its own: it lets go of the ports of portals. What is served
// is served on, for who has come before and for whom the rules lead here still. After
// it Reconcile may be called again.
func (p *Proxier) Yield() Memory {
	p.claims.release(p.shared.budget, nil)
	known := Memory{Affinity: make(map[string][]loadbalancer.Memory)}
	for _, key := range sortedKeys(p.ports) {
		s := p.ports[key]
		known.Served = append(known.Served, s.spec)
		if m := s.group.Memories(); len(m) > 0 {
			known.Affinity[key.String()] = m
		}
	}
	return known
}

// Recall takes in what the process knew that has yielded. It is for before the first
// Reconcile.
func (p *Proxier) Recall(known Memory) {
	known.Served = slices.DeleteFunc(known.Served, func(port service.Port) bool {
		_, ok := p.config.Listen[port.Family]
		return !ok
	})
	p.recall = known
}
