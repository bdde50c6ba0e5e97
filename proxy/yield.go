package proxy

import "github.com/userspace-proxy/userspace-proxy/loadbalancer"

// Memory is what the next process on this node is to know: which endpoint the
// clients of each service port went to last, where the Service asks for affinity.
type Memory map[string][]loadbalancer.Memory

// Yield makes room for another process on this node, which will have the rules lead
// clients to listeners of its own: it lets go of the ports of portals. What is served
// is served on, for who has come before and for whom the rules lead here still. After
// it Reconcile may be called again.
func (p *Proxier) Yield() Memory {
	p.claims.release(p.shared.budget, nil)
	known := make(Memory)
	for key, s := range p.ports {
		if m := s.group.Memories(); len(m) > 0 {
			known[key.String()] = m
		}
	}
	return known
}

// Recall takes in what the process knew that has yielded. It is for before the first
// Reconcile.
func (p *Proxier) Recall(known Memory) { p.recall = known }
