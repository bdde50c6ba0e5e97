package proxy

import (
	"net/netip"
	"sync/atomic"
	"time"
)

// flowKey names a UDP flow among those of one server.
type flowKey struct {
	client netip.AddrPort
	// local is the address that the client sent to, and that it expects the
	// replies from, where the server's socket has them all; else the zero Addr.
	local netip.Addr
}

// udpFlow is what passes between one client and one endpoint, over a connected
// socket of its own. The time in it is that of udpFlows.now.
type udpFlow struct {
	key      flowKey
	endpoint netip.AddrPort
	server   *udpServer
	socket   endpointSocket
	replyTo  replyAddress
	opened   time.Duration
	trace    *trace  // nil for nearly all
	up, down traffic // from the client, from the endpoint

	// Guarded by udpFlows.mu.
	used    time.Duration // when a datagram last passed, either way
	trial   time.Duration // since when no refusal has come
	proven  bool          // the balancer has heard that the endpoint works
	refused bool          // the endpoint has refused since it last replied: pick anew
	awaited int           // answers: datagrams sent, less those received
	left    bool          // by its endpoint, which is no longer the client's to ask
	ended   bool
	links   [flowOrders]flowLink
}

// traffic counts what passed in one direction.
type traffic struct{ datagrams, bytes atomic.Uint64 }

func (t *traffic) count(bytes int) {
	t.datagrams.Add(1)
	t.bytes.Add(uint64(bytes))
}

// flowTable keeps the flows of all servers in the order of their use. It does
// no I/O and reads no clock; whoever calls it holds udpFlows.mu.
type flowTable struct {
	byUse flowList
	size  int
}

// flowGroup are the flows of one server.
type flowGroup struct {
	idle  time.Duration // a flow that was not used for as long is over
	byKey map[flowKey]*udpFlow
	byUse flowList
}

func newFlowTable() flowTable { return flowTable{byUse: flowList{order: amongAll}} }

func newFlowGroup(idle time.Duration) flowGroup {
	return flowGroup{idle: idle, byUse: flowList{order: amongSiblings}}
}

// add makes f, whose key must be new to the group, its most recently used flow.
func (t *flowTable) add(g *flowGroup, f *udpFlow, now time.Duration) {
	if g.byKey == nil {
		g.byKey = make(map[flowKey]*udpFlow)
	}
	g.byKey[f.key] = f
	f.used = now
	t.size++
	t.byUse.pushFront(f)
	g.byUse.pushFront(f)
}

// use notes that a datagram passes.
func (t *flowTable) use(g *flowGroup, f *udpFlow, now time.Duration) {
	f.used = now
	t.byUse.moveToFront(f)
	g.byUse.moveToFront(f)
}

// remove takes out f, which must be in.
func (t *flowTable) remove(g *flowGroup, f *udpFlow) {
	delete(g.byKey, f.key)
	if len(g.byKey) == 0 {
		g.byKey = nil // a map never gives back what it grew to
	}
	t.size--
	t.byUse.remove(f)
	g.byUse.remove(f)
}

// isOver tells whether the flow's idle time has passed.
func (g *flowGroup) isOver(f *udpFlow, now time.Duration) bool { return now-f.used >= g.idle }

// The orders that a flow is kept in.
const (
	amongAll      = iota // flows of all servers: who gives way to a new one
	amongSiblings        // flows of its own server, whose idle time they share: whose time is over
	flowOrders
)

// flowList is a list of flows, the most recently used first, linked through
// the flows themselves.
type flowList struct {
	order       int
	first, last *udpFlow
}

type flowLink struct{ before, after *udpFlow }

func (l *flowList) pushFront(f *udpFlow) {
	f.links[l.order] = flowLink{after: l.first}
	if l.first != nil {
		l.first.links[l.order].before = f
	} else {
		l.last = f
	}
	l.first = f
}

func (l *flowList) remove(f *udpFlow) {
	link := f.links[l.order]
	if link.before != nil {
		link.before.links[l.order].after = link.after
	} else {
		l.first = link.after
	}
	if link.after != nil {
		link.after.links[l.order].before = link.before
	} else {
		l.last = link.before
	}
	f.links[l.order] = flowLink{}
}

func (l *flowList) moveToFront(f *udpFlow) {
	if l.first != f {
		l.remove(f)
		l.pushFront(f)
	}
}

// all is an iterator over the flows; the one it is at may be removed.
func (l *flowList) all(yield func(*udpFlow) bool) {
	for f := l.first; f != nil; {
		after := f.links[l.order].after
		if !yield(f) {
			return
		}
		f = after
	}
}
