package proxy

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// ConnectionStatus is one TCP connection, for people and tests. Field names of
// its JSON are a contract.
type ConnectionStatus struct {
	Service  string         `json:"service"` // namespace/name:port/protocol
	Client   netip.AddrPort `json:"client"`
	Endpoint netip.AddrPort `json:"endpoint,omitzero"` // none while it is looked for
	State    string         `json:"state"`             // ConnectionDialling and so on
	Since    time.Time      `json:"since"`
	Age      Span           `json:"age"`
	Idle     Span           `json:"idle"` // since a byte last passed
	Up       int64          `json:"up"`   // bytes from the client
	Down     int64          `json:"down"` // bytes from the endpoint
}

// States of a connection.
const (
	ConnectionDialling   = "dialling"    // no endpoint has answered yet
	ConnectionOpen       = "open"        //
	ConnectionHalfClosed = "half-closed" // one side has ended its stream, the other goes on
	ConnectionEnding     = "ending"      // one side was reset, and the other is yet to have what came before
)

// Span is a duration whose JSON is for people: "1m3.5s".
type Span time.Duration

// MarshalText rounds to milliseconds.
func (s Span) MarshalText() ([]byte, error) {
	return []byte(time.Duration(s).Round(time.Millisecond).String()), nil
}

// UnmarshalText reads what MarshalText wrote.
func (s *Span) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	*s = Span(d)
	return err // encoding/json names the field
}

// Connections lists TCP connections, most of them at most, and says how many
// there are. Which ones, where there are more, is chance. It may be called at any
// time, and takes some time of the loops for each connection that it lists.
func (p *Proxier) Connections(most int) (list []ConnectionStatus, open int) {
	list = p.shared.tcp.list(most)
	slices.SortFunc(list, func(a, b ConnectionStatus) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), a.Client.Compare(b.Client))
	})
	return list, p.shared.tcp.open()
}

// Flows lists UDP flows in the same way.
func (p *Proxier) Flows(most int) (list []FlowStatus, open int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	open = int(p.shared.metrics.udp.active.Load())
	if open == 0 || most <= 0 { // thousands of ports need not be sorted for it
		return nil, open
	}
	for _, key := range sortedKeys(p.ports) {
		list = append(list, p.ports[key].flows(most-len(list))...)
	}
	return list, open
}

func (s *servicePort) flows(most int) (list []FlowStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.listeners {
		list = append(list, l.flows(most-len(list))...)
	}
	for i := range list {
		list[i].Service = s.key.PortName.String()
	}
	return list
}
