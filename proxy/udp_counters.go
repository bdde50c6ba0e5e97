package proxy

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"time"
)

// udpCounters count what passes over UDP, of all servers.
type udpCounters struct {
	opened     atomic.Uint64 // flows
	active     atomic.Int64  // flows
	refused    atomic.Uint64 // flows whose endpoint refused, each time it did
	readErrors atomic.Uint64
	ended      [endReasons]atomic.Uint64  // flows
	dropped    [dropReasons]atomic.Uint64 // datagrams, either way
}

// endReason is why a flow ended.
type endReason int

const (
	endedIdle     endReason = iota
	endedEvicted            // another needed its descriptor or its port
	endedEndpoint           // its endpoint was removed
	endedRefused            // its endpoint refused, and there was another
	endedServer             // its service port was removed or has no endpoint
	endReasons
)

// String is the reason as a metric's label.
func (r endReason) String() string {
	return [endReasons]string{"idle", "evicted", "endpoint_removed", "refused", "closed"}[r]
}

// dropReason is why a datagram was not sent on.
type dropReason int

const (
	dropNone         dropReason = iota
	dropNoEndpoint              // the service port has none
	dropUnreachable             // no endpoint can be reached from this host
	dropNoDescriptor            // for a new flow
	dropNoPort                  // local, for a new flow
	dropTooBig                  // for the way that it was to go
	dropBusy                    // the socket's send buffer is full
	dropFailed                  // sending failed for another reason
	dropLate                    // a reply, when its flow had ended
	dropSource                  // its client may not come from there
	dropClosed                  // its server was being closed
	dropReasons
)

// String is the reason as a metric's label.
func (r dropReason) String() string {
	return [dropReasons]string{
		"none", "no_endpoint", "unreachable", "descriptors", "local_ports",
		"too_big", "send_buffer", "send_error", "late", "source_range", "closed",
	}[r]
}

// FlowStatus is one UDP flow, for people and tests.
type FlowStatus struct {
	Service  string         `json:"service"` // namespace/name:port/protocol
	Client   netip.AddrPort `json:"client"`
	Local    netip.Addr     `json:"local,omitzero"` // that the client sends to, where the listener is on all addresses
	Endpoint netip.AddrPort `json:"endpoint"`
	Since    time.Time      `json:"since"`
	Age      Span           `json:"age"`
	Idle     Span           `json:"idle"` // since the last datagram
	Up       Traffic        `json:"up"`   // from the client
	Down     Traffic        `json:"down"` // from the endpoint
}

// Traffic is what has passed in one direction.
type Traffic struct {
	Datagrams uint64 `json:"datagrams"`
	Bytes     uint64 `json:"bytes"`
}

func (t *traffic) status() Traffic {
	return Traffic{Datagrams: t.datagrams.Load(), Bytes: t.bytes.Load()}
}

// status lists the server's flows, the most recently used, by client.
func (s *udpServer) status(most int) []FlowStatus {
	list := s.flowStatus(most)
	slices.SortFunc(list, func(a, b FlowStatus) int {
		if c := a.Client.Compare(b.Client); c != 0 {
			return c
		}
		return a.Local.Compare(b.Local)
	})
	return list
}

func (s *udpServer) flowStatus(most int) []FlowStatus {
	u := s.flows
	u.mu.Lock()
	defer u.mu.Unlock()
	now := u.now()
	var list []FlowStatus
	for f := range s.group.byUse.all {
		if len(list) >= most || s.group.isOver(f, now) { // and so are all that follow
			break
		}
		list = append(list, FlowStatus{
			Client: f.key.client, Local: f.key.local, Endpoint: f.endpoint,
			Since: u.start.Add(f.opened), Age: Span(now - f.opened), Idle: Span(now - f.used),
			Up: f.up.status(), Down: f.down.status(),
		})
	}
	return list
}

// countByEndpoint adds the number of the server's flows to each endpoint.
func (s *udpServer) countByEndpoint(to map[netip.AddrPort]int) {
	s.flows.mu.Lock()
	defer s.flows.mu.Unlock()
	for f := range s.group.byUse.all {
		to[f.endpoint]++
	}
}
