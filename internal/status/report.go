package status

import (
	"net/netip"
	"time"

	"github.com/userspace-proxy/userspace-proxy/config"
	"github.com/userspace-proxy/userspace-proxy/proxy"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// Report is everything that people may want to know of a proxy at one moment.
// The names in its JSON are a contract.
type Report struct {
	Version  string    `json:"version"`
	Time     time.Time `json:"time"`
	Started  time.Time `json:"started"`
	Uptime   string    `json:"uptime"`
	Node     Node      `json:"node"`
	Redirect string    `json:"redirect"` // nftables, iptables or none

	Transparent bool `json:"transparent"` // endpoints see clients' addresses where they can

	Summary  string    `json:"summary"` // what is served, in one line
	Failing  string    `json:"failing,omitempty"`
	Sources  []Source  `json:"sources"`
	Problems []Problem `json:"problems"`

	proxy.Status // Its problems are among Problems.

	Hits            Hits                     `json:"ruleHits,omitzero"`
	Connections     []proxy.ConnectionStatus `json:"connections"`
	ConnectionsOpen int                      `json:"connectionsOpen"` // those that are not listed too
	Flows           []proxy.FlowStatus       `json:"flows"`
	FlowsOpen       int                      `json:"flowsOpen"`
}

// Hits says how the rules' counters were read. Those of portals are with them.
type Hits struct {
	Read    time.Time `json:"read,omitzero"`
	Guarded uint64    `json:"guardedPackets"` // that talked to a listener past its portal
	Barred  uint64    `json:"barredPackets"`  // to a load balancer address, from where nobody may come to it
	Error   string    `json:"error,omitempty"`
}

// Lists are how many of what is listed one by one a report has at most.
type Lists struct{ Connections, Flows int }

// listed is how many there are unless the request asks for another number.
const listed = 1000

// MostListed is how many it can ask for.
const MostListed = 100_000

// whole is the report with empty lists where there were none, so that who
// reads its JSON need not tell null from [].
func (r Report) whole() Report {
	r.Node.Addresses = append([]netip.Addr{}, r.Node.Addresses...)
	r.Node.NodePortAddresses = append([]netip.Addr{}, r.Node.NodePortAddresses...)
	r.Node.ListenAddresses = append([]netip.Addr{}, r.Node.ListenAddresses...)
	if r.Sources == nil {
		r.Sources = []Source{}
	}
	if r.Problems == nil {
		r.Problems = []Problem{}
	}
	if r.Ports == nil {
		r.Ports = []proxy.PortStatus{}
	}
	if r.Connections == nil {
		r.Connections = []proxy.ConnectionStatus{}
	}
	if r.Flows == nil {
		r.Flows = []proxy.FlowStatus{}
	}
	return r
}

// Node is the machine, as far as it matters to what is served.
type Node struct {
	Name              string       `json:"name"`
	Addresses         []netip.Addr `json:"addresses"`         // its own in each family
	NodePortAddresses []netip.Addr `json:"nodePortAddresses"` // where node ports are served
	ListenAddresses   []netip.Addr `json:"listenAddresses"`   // where rules lead portals to
}

// Source is how one source of Services is doing.
type Source struct {
	Name      string `json:"name"`
	Delivered bool   `json:"delivered"`         // its first full state is in
	Age       string `json:"age,omitempty"`     // since it last sent an update
	Checked   string `json:"checked,omitempty"` // since it last saw its origin whole
	Services  int    `json:"services"`
	Endpoints int    `json:"endpoints"`          // EndpointSlices and Endpoints objects
	Problems  int    `json:"problems,omitempty"` // objects and files that it could not take as they are
	Error     string `json:"error,omitempty"`
}

// SourcesOf are sources as people see them at a moment.
func SourcesOf(infos []config.SourceInfo, now time.Time) []Source {
	sources := make([]Source, len(infos))
	for i, s := range infos {
		sources[i] = Source{
			Name: s.Name, Delivered: s.Delivered, Age: age(s.Updated, now), Checked: age(s.Checked, now),
			Services: s.Services, Endpoints: s.Endpoints, Problems: s.Problems, Error: s.Err,
		}
	}
	return sources
}

// age is how long ago something was; empty where it never was.
func age(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return now.Sub(t).Round(time.Second).String()
}

// Problem is a service.Problem.
type Problem struct {
	Object string `json:"object"`
	Field  string `json:"field,omitempty"`
	Reason string `json:"reason"`
	Detail string `json:"detail"`
	Advice string `json:"advice,omitempty"`

	Service service.ServiceRef `json:"-"` // is in Object
}

// ProblemsOf are problems in the same order.
func ProblemsOf(problems []service.Problem) []Problem {
	all := make([]Problem, len(problems))
	for i, p := range problems {
		all[i] = Problem(p)
	}
	return all
}
