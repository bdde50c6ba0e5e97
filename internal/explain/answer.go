package explain

import (
	"net/netip"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// Verdict is what becomes of a packet.
type Verdict string

// The verdicts.
const (
	Served    Verdict = "served"
	Refused   Verdict = "refused"   // at once: TCP reset, UDP port unreachable
	Dropped   Verdict = "dropped"   // without an answer
	Elsewhere Verdict = "elsewhere" // it is not for this proxy, which leaves it alone
)

// Answer is a packet's way. The names in its JSON are a contract.
type Answer struct {
	Protocol service.Protocol `json:"protocol"`
	To       netip.AddrPort   `json:"to"`
	From     netip.Addr       `json:"from,omitzero"`
	Live     bool             `json:"live"` // as told by a running proxy, not by a file
	Verdict  Verdict          `json:"verdict"`
	Summary  string           `json:"summary"`
	Service  string           `json:"service,omitempty"` // the service port, as in /statusz
	Endpoint netip.AddrPort   `json:"endpoint,omitzero"` // the one that is next, where Verdict is Served
	Steps    []Step           `json:"steps"`             // in the order of the way
	Advice   []string         `json:"advice"`            // what would change the verdict
}

// Step is one step of the way.
type Step struct {
	Name      string     `json:"step"`
	Text      string     `json:"text"`
	Endpoints []Endpoint `json:"endpoints,omitempty"` // in the order in which they are tried
}

// Endpoint is one that the step could lead to.
type Endpoint struct {
	Addr netip.AddrPort `json:"addr"`
	Pod  string         `json:"pod,omitempty"`
	Node string         `json:"node,omitempty"`
	Turn int            `json:"turn"` // 1 is next, 2 if that fails; 0 is never
	Why  string         `json:"why"`
}

func (a *Answer) step(name, text string) { a.Steps = append(a.Steps, Step{Name: name, Text: text}) }

func (a *Answer) advise(what string) { a.Advice = append(a.Advice, what) }
