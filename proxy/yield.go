package proxy

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/userspace-proxy/userspace-proxy/loadbalancer"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// Memory is what the next process on this node is to know, which may be of another
// version of the program: it is read as JSON, so that a field may be added, but none
// may become of another type.
type Memory struct {
	// Served is what was served: the next process serves it too until every source
	// has told it what there is.
	Served []service.Port
	// Ports are those that its listeners are at.
	Ports service.PortRange
	// Affinity is which endpoint the clients of each service port went to last.
	Affinity map[string][]loadbalancer.Memory
}

// Yield makes room for another process on this node, which will have the rules lead
// clients to listeners of its own: it lets go of the ports of portals. What is served
// is served on, for who has come before and for whom the rules lead here still. After
// it Reconcile may be called again.
func (p *Proxier) Yield() Memory {
	p.claims.release(p.shared.budget, nil)
	known := Memory{Ports: p.config.Ports, Affinity: make(map[string][]loadbalancer.Memory)}
	maps.Copy(known.Affinity, p.recall.Affinity) // where this one has not come that far itself
	for _, port := range p.recall.Served {
		if p.ports[port.Key] == nil {
			known.Served = append(known.Served, port)
		}
	}
	for _, key := range sortedKeys(p.ports) {
		s := p.ports[key]
		known.Served = append(known.Served, s.spec)
		if m := s.group.Memories(); len(m) > 0 {
			known.Affinity[key.String()] = m
		}
	}
	return known
}

// Regain has everything made anew: after Yield another process has had the node. The
// Rules must have forgotten what they had made.
func (p *Proxier) Regain() {
	p.tracked.damaged()
	p.mu.Lock()
	p.waiting = time.Time{} // what was not done meanwhile was not this one's to do
	p.ask()
	p.mu.Unlock()
	p.wake()
}

// FitsBeside says whether a range of ports has room for the listeners of a process
// that is to take over: those that stand are there until the last of their
// connections has ended. The error says what is too many.
func (m Memory) FitsBeside(ports service.PortRange) error {
	stand := make(map[socketPlace]int)
	for _, p := range m.Served {
		at := socketPlace{p.Family, p.Protocol}
		if p.UsesAll() {
			stand[at]++
		}
		if p.UsesLocal() {
			stand[at]++
		}
	}
	apart := m.Ports.First > 0 && (m.Ports.Last < ports.First || ports.Last < m.Ports.First)
	for at, n := range stand {
		if need := 2 * n; need > ports.Size() && !apart || n > ports.Size() {
			return fmt.Errorf("%d listeners stand for %s by %s, and %v has no room for as many beside them: give a wider --proxy-port-range, or start without --takeover", n, at.protocol, at.family, ports)
		}
	}
	return nil
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
