package explain

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/userspace-proxy/userspace-proxy/proxy"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// endpoints are the last steps of a packet that is served.
func (w World) endpoints(a *Answer, q Question, p proxy.Prospect) {
	f := p.Forecast
	a.Endpoint = f.Endpoints[0].Addr
	a.step("endpoints", "in the order in which they would be tried now")
	s := &a.Steps[len(a.Steps)-1]
	resting := !f.Endpoints[0].RestingUntil.IsZero() && f.Endpoints[0].Addr != f.Affine
	for i, e := range f.Endpoints {
		listed := Endpoint{Addr: e.Addr, Pod: e.Pod, Node: e.Node, Turn: i + 1}
		rest := max(time.Second, e.RestingUntil.Sub(w.Now).Round(time.Second))
		switch {
		case i == 0 && e.Addr == f.Affine:
			listed.Why = "next: has the client's affinity"
		case i == 0 && resting:
			listed.Why = "next: its turn, as all rest"
		case i == 0:
			listed.Why = "next: its turn"
		case e.RestingUntil.IsZero():
			listed.Why = "later in turn"
		case e.OnTrial:
			listed.Why = "on trial after " + failures(e.Failures)
		default:
			listed.Why = fmt.Sprintf("rests for %v after %s", rest, failures(e.Failures))
		}
		s.Endpoints = append(s.Endpoints, listed)
	}
	unused(a, p.Port)
	a.step("dial", dial(q, p)+w.sender(q, f.Endpoints[0].Addr))
}

func failures(n int) string {
	if n == 1 {
		return "a failed dial"
	}
	return fmt.Sprintf("%d failed dials", n)
}

// unused adds the endpoints that are never picked to the last step.
func unused(a *Answer, port service.Port) {
	s := &a.Steps[len(a.Steps)-1]
	for _, e := range port.Unused {
		s.Endpoints = append(s.Endpoints, Endpoint{Addr: e.Addr, Pod: e.Pod, Node: e.Node, Why: "not picked: " + e.Why})
	}
}

// sender says from where the endpoint is connected to, where that is not always
// this node.
func (w World) sender(q Question, endpoint netip.AddrPort) string {
	switch {
	case w.ShowsClient == nil:
		return ""
	case !q.From.IsValid():
		return "; --from IP tells from which address"
	case w.ShowsClient(q.From, endpoint.Addr()):
		return fmt.Sprintf("; from %s, the client's own address", q.From)
	}
	return "; from this node's address: replies to the client's would not be certain to come here"
}

// dial says how the endpoint is reached, and what if it is not.
func dial(q Question, p proxy.Prospect) string {
	all := p.Forecast.Endpoints
	text := "connect to " + all[0].Addr.String()
	if q.Protocol == service.UDP {
		text = fmt.Sprintf("a socket of its own to %s; the flow stays there until nothing has passed for %v", all[0].Addr, p.Timings.UDPIdle)
		if len(all) > 1 {
			text += fmt.Sprintf(", or, where that one refuses, goes to %s with the next datagram", all[1].Addr)
		}
		return text
	}
	if len(all) > 1 {
		text += fmt.Sprintf("; if it refuses, to %s at once; if it has not answered after %v, to that one beside it", all[1].Addr, p.Timings.Fallback)
	}
	return text + fmt.Sprintf("; reset after %v without an answer", p.Timings.Dial)
}
