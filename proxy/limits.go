package proxy

import (
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/sirupsen/logrus"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// limits bound how many TCP connections are open at once: all of them, those
// of each client address, and those of each Service. What is one too many is
// reset at once (docs/adr/0010-limits.md says why it does not wait).
//
// admit and release cost no system call and no memory; a limit of clients that
// is not set costs no lock. The table of clients has those alone that have
// connections, and so never more than there are connections.
type limits struct {
	all       openCount
	perClient int32 // 0: no limit

	mu      sync.Mutex
	clients map[[16]byte]int32 // connections of each client that has some

	services map[serviceName]*openCount // the Proxier's own
}

// serviceName is a Service, all of whose ports share a limit.
type serviceName struct{ namespace, name string }

// newLimits: 0 is no limit.
func newLimits(all, perClient int) *limits {
	l := &limits{perClient: int32(min(perClient, 1<<30)), services: make(map[serviceName]*openCount)}
	l.all.most.Store(int64(all))
	return l
}

// openCount is how many connections are open, and how many may be.
type openCount struct{ open, most atomic.Int64 } // most 0: no limit

func (c *openCount) take() bool {
	most := c.most.Load()
	if most <= 0 {
		c.open.Add(1)
		return true
	}
	for {
		open := c.open.Load()
		if open >= most {
			return false
		}
		if c.open.CompareAndSwap(open, open+1) {
			return true
		}
	}
}

func (c *openCount) give() { c.open.Add(-1) }

// admit counts a client's connection to a Service, or says by which limit it is
// to be refused: the label of a metric, empty where it may come in. Who was
// admitted must be released.
func (l *limits) admit(client netip.Addr, of *openCount) string {
	switch {
	case !l.all.take():
		return refusedLimit
	case !of.take():
		l.all.give()
		return refusedServiceLimit
	case !l.takeClient(client):
		l.all.give()
		of.give()
		return refusedClientLimit
	}
	return ""
}

// full says why a client's next connection to a Service would be turned away;
// empty where it would not.
func (l *limits) full(client netip.Addr, of *openCount) string {
	isFull := func(c *openCount) bool {
		most := c.most.Load()
		return most > 0 && c.open.Load() >= most
	}
	switch {
	case isFull(&l.all):
		return whyTurnedAway(refusedLimit)
	case isFull(of):
		return whyTurnedAway(refusedServiceLimit)
	case l.perClient > 0 && client.IsValid() && l.ofClient(client) >= l.perClient:
		return whyTurnedAway(refusedClientLimit)
	}
	return ""
}

// ofClient is how many connections a client has.
func (l *limits) ofClient(client netip.Addr) int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.clients[client.As16()]
}

// release is for a connection that was admitted and has ended.
func (l *limits) release(client netip.Addr, of *openCount) {
	l.giveClient(client)
	of.give()
	l.all.give()
}

func (l *limits) takeClient(client netip.Addr) bool {
	if l.perClient == 0 {
		return true
	}
	key := client.As16()
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.clients[key]
	if n >= l.perClient {
		return false
	}
	if l.clients == nil {
		l.clients = make(map[[16]byte]int32)
	}
	l.clients[key] = n + 1
	return true
}

func (l *limits) giveClient(client netip.Addr) {
	if l.perClient == 0 {
		return
	}
	key := client.As16()
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.clients[key]; n > 1 {
		l.clients[key] = n - 1
		return
	}
	delete(l.clients, key)
	if len(l.clients) == 0 {
		l.clients = nil // a map never gives back what it grew to
	}
}

// service is the count of the Service that a port belongs to. It outlives the
// Service for as long as connections to it are open, so that one that is
// removed and made anew does not begin at nothing.
func (l *limits) service(key service.Key) *openCount {
	name := serviceName{key.Namespace, key.Name}
	c := l.services[name]
	if c == nil {
		c = new(openCount)
		l.services[name] = c
	}
	return c
}

// forget lets go of the Services that have neither ports nor connections.
func (l *limits) forget(served map[service.Key]*servicePort) {
	has := make(map[serviceName]bool, len(served))
	for key := range served {
		has[serviceName{key.Namespace, key.Name}] = true
	}
	for name, c := range l.services {
		if !has[name] && c.open.Load() == 0 {
			delete(l.services, name)
		}
	}
}

// isOwn says whether a client that has come in is a dial of the proxy's own.
func (s *shared) isOwn(client netip.AddrPort, called func() netip.AddrPort) bool {
	is, first := s.own.turnsBack(client, called)
	if first {
		s.wake()
	}
	return is
}

// turnAway tells of a client that is reset at accept: each time in a metric and
// its trace, and once in a while in the log.
func (s *shared) turnAway(why string, key service.Key, client netip.AddrPort, trace *portTrace) {
	s.metrics.refused[why].Inc()
	if trace != nil {
		trace.turnedAway(why, client)
	}
	message := whyTurnedAway(why)
	if held, ok := s.warn.due(message); ok {
		fields := logrus.Fields{"service": key.PortName.String(), "client": client.Addr()}
		if held > 0 {
			fields["held_back"] = held
		}
		s.log.WithFields(fields).Warn(message)
	}
}

func whyTurnedAway(why string) string {
	switch why {
	case refusedLimit:
		return "as many connections as --max-connections allows are open: new ones are reset until others end"
	case refusedOwnDial:
		return "a connection of the proxy's own has come back to it: it is reset, see the problems"
	case refusedServiceLimit:
		return "a Service has as many connections as its annotation userspace-proxy/max-connections allows: new ones are reset until others end"
	}
	return "a client has as many connections as --max-connections-per-client allows: its new ones are reset until others end"
}
