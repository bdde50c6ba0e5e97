package explain

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/userspace-proxy/userspace-proxy/loadbalancer"
	"github.com/userspace-proxy/userspace-proxy/proxy"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// Explain follows a packet until it is served or it is clear why not.
func Explain(q Question, w World) Answer {
	a := Answer{Protocol: q.Protocol, To: q.To, From: q.From, Live: w.Live, Advice: []string{}}
	a.step("packet", w.packet(q))
	switch p, ok := w.Prospect(q.Protocol, q.To, q.From); {
	case ok:
		w.ours(&a, q, p)
	case w.hasRules() && w.guards(q.To):
		w.guarded(&a, q)
	default:
		w.elsewhere(&a, q)
	}
	a.Summary = a.summary(q)
	return a
}

// packet says who sends it.
func (w World) packet(q Question) string {
	first := "the first packet of a connection"
	if q.Protocol == service.UDP {
		first = "the first datagram of a flow"
	}
	switch {
	case !q.From.IsValid():
		return first + ", from anybody; --from IP asks for one client"
	case w.isLocal(q.From):
		return first + ", from this node itself"
	case w.isInside(q.From):
		return first + ", from a pod on this node"
	}
	return first + ", from a pod or another machine"
}

// ours is the way of a packet for one of the portals.
func (w World) ours(a *Answer, q Question, p proxy.Prospect) {
	a.Service = p.Port.PortName.String()
	a.step("portal", fmt.Sprintf("%s of %s, port %q, from the source %s",
		p.Portal.Kind, serviceName(p.Port.PortName), p.Port.Port, p.Port.Source))
	if q.To.Addr().IsLoopback() && q.From.IsValid() && !w.isLocal(q.From) {
		a.Verdict = Elsewhere
		a.step("route", "a loopback address is this node's alone: a packet from another machine never comes here")
		a.advise("ask from this node, or by another address of the Service")
		return
	}
	if p.Portal.State == proxy.StateUnserved {
		w.unserved(a, p)
		return
	}
	if p.Barred {
		w.barred(a, q, p)
		return
	}
	if p.Portal.State == proxy.StateDropping {
		w.dropped(a, q, p)
		return
	}
	a.step("rule", w.rule(q, p))
	if p.Portal.State == proxy.StateRefusing {
		w.noEndpoint(a, q, p)
		return
	}
	if p.Full != "" {
		a.Verdict = Refused
		a.step("listener", p.Portal.Listener+" accepts, and resets at once: "+p.Full)
		a.advise("wait until connections end, or raise the limit")
		return
	}
	a.step("listener", p.Portal.Listener+listens(q.Protocol))
	a.step("traffic", traffic(p))
	a.step("affinity", w.affinity(q, p.Forecast))
	w.endpoints(a, q, p)
	a.Verdict = Served
}

// rule says how the packet comes to the listener.
func (w World) rule(q Question, p proxy.Prospect) string {
	if !w.hasRules() {
		return "none is needed (--redirect=none): the listener stands on the portal itself"
	}
	if !w.Live {
		return fmt.Sprintf("%s would lead it to %s", w.Redirect, p.Portal.Listener)
	}
	text := fmt.Sprintf("%s leads it to %s", w.Redirect, p.Portal.Listener)
	if n, ok := w.Hits(q.Protocol, q.To); ok {
		what := "connections"
		if q.Protocol == service.UDP {
			what = "flows"
		}
		text += fmt.Sprintf("; %d %s have come by this rule since it was made", n, what)
	}
	return text
}

// unserved is for a portal that should have a listener and has none.
func (w World) unserved(a *Answer, p proxy.Prospect) {
	a.Verdict = Elsewhere
	what := "no listener stands there"
	if w.hasRules() {
		what = "no rule leads it here"
	}
	a.step("rule", what+": "+p.Portal.Why)
	if p.Portal.Advice != "" {
		a.advise(p.Portal.Advice)
	}
}

// noEndpoint is for a portal whose port is held.
func (w World) noEndpoint(a *Answer, q Question, p proxy.Prospect) {
	a.Verdict = Refused
	how := "bound and not listening, so that a connect is refused at once"
	if q.Protocol == service.UDP {
		how = "bound and deaf, so that a datagram is answered by port unreachable at once"
	}
	a.step("listener", fmt.Sprintf("%s is held: %s, because there is no endpoint to pick", p.Portal.Listener, how))
	name := serviceName(p.Port.PortName)
	if len(p.Port.Unused)+len(p.Port.Endpoints) == 0 {
		a.step("endpoints", "there are none")
		if w.reportedOf(a, p.Port.PortName) {
			return
		}
		a.advise(fmt.Sprintf("give %s an EndpointSlice with the label kubernetes.io/service-name: %s and a port of the name %q", name, p.Port.Name, p.Port.Port))
		return
	}
	if p.Local && len(p.Port.Endpoints) > 0 { // at an external portal it would be dropped
		a.step("endpoints", "there are some, and none that may be picked is on this node, as internalTrafficPolicy Local asks for")
		a.advise(fmt.Sprintf("it is served as soon as an endpoint of %s on this node may be picked, or with internalTrafficPolicy Cluster", name))
		return
	}
	a.step("endpoints", "there are some, and none may be picked")
	unused(a, p.Port)
	a.advise(fmt.Sprintf("it is served as soon as one endpoint of %s may be picked", name))
}

func listens(protocol service.Protocol) string {
	if protocol == service.UDP {
		return " takes datagrams"
	}
	return " accepts connections"
}

// traffic says which endpoints may be picked for it.
func traffic(p proxy.Prospect) string {
	kind := p.Portal.Kind
	text, policy := fmt.Sprintf("internal (%s)", kind), "internalTrafficPolicy"
	if kind.IsExternal() {
		text, policy = fmt.Sprintf("external (%s)", kind), "externalTrafficPolicy"
	}
	switch {
	case p.Local && kind.IsExternal():
		return text + ", from outside, " + policy + " Local: endpoints on this node alone may be picked"
	case p.Local:
		return text + ", " + policy + " Local: endpoints on this node alone may be picked"
	case kind.IsExternal() && p.Port.ExternalLocal:
		return text + ", from inside this node: endpoints on every node may be picked, whatever " + policy + " says"
	}
	return text + ": endpoints on every node may be picked"
}

// barred is for a client that is in none of the source ranges.
func (w World) barred(a *Answer, q Question, p proxy.Prospect) {
	how := w.keptOut(a, q, "")
	allowed := "nobody"
	if list := p.Port.Sources.Allowed; len(list) > 0 {
		allowed = strings.Trim(fmt.Sprint(list), "[]")
	}
	a.step("rule", fmt.Sprintf("%s: %s is in none of spec.loadBalancerSourceRanges, which let in %s", how, q.From, allowed))
	a.advise(fmt.Sprintf("add a range with %s to spec.loadBalancerSourceRanges of %s", q.From, serviceName(p.Port.PortName)))
}

// dropped is for what comes from outside to a node that has no endpoint for it.
func (w World) dropped(a *Answer, q Question, p proxy.Prospect) {
	how := w.keptOut(a, q, ", so that the client tries another node")
	a.step("rule", how+": it comes from outside, externalTrafficPolicy is Local, and no endpoint on this node may be picked")
	a.advise(fmt.Sprintf("ask a node that has an endpoint of %s, or set externalTrafficPolicy to Cluster", serviceName(p.Port.PortName)))
}

// keptOut says what becomes of a packet that rules drop. Without rules a
// connection cannot be dropped when the proxy hears of it.
func (w World) keptOut(a *Answer, q Question, why string) string {
	a.Verdict = Dropped
	switch {
	case w.hasRules():
		return w.Redirect + " drops it" + why
	case q.Protocol == service.TCP:
		a.Verdict = Refused
		return "there are no rules (--redirect=none), so the listener accepts it and resets at once" + why
	}
	return "there are no rules (--redirect=none), so the listener drops it" + why
}

// affinity says whether the client has an endpoint already.
func (w World) affinity(q Question, f loadbalancer.Forecast) string {
	switch {
	case f.Timeout == 0:
		return "none: each goes to the endpoint whose turn it is"
	case !q.From.IsValid():
		return fmt.Sprintf("ClientIP, %v: a client goes where it went last; --from IP tells where", f.Timeout)
	case !f.Affine.IsValid():
		return fmt.Sprintf("ClientIP, %v: %s has no entry, or it is over; it gets one now", f.Timeout, q.From)
	}
	age := max(0, w.Now.Sub(f.Used)).Round(time.Second)
	text := fmt.Sprintf("ClientIP, %v: %s went to %s, last %v ago", f.Timeout, q.From, f.Affine, age)
	if f.Endpoints[0].Addr != f.Affine {
		return text + "; that one rests, so the entry moves to the next"
	}
	return text
}

// serviceName is a Service as people write it.
func serviceName(n service.PortName) string { return n.Namespace + "/" + n.Name }

// summary is the verdict in one line.
func (a *Answer) summary(q Question) string {
	s := q.String() + ": "
	switch a.Verdict {
	case Served:
		s += "served by " + a.Endpoint.String()
		for _, e := range a.Steps[len(a.Steps)-2].Endpoints {
			if e.Turn == 1 && e.Pod != "" {
				s += " (" + e.Pod + ")"
			}
		}
		return s
	case Refused:
		return s + "refused at once"
	case Dropped:
		return s + "dropped without an answer"
	}
	if a.Service != "" {
		return s + "not served by this proxy, though " + a.Service + " asks for it"
	}
	return s + "not for this proxy"
}

// guards says whether the rules' guard keeps an address.
func (w World) guards(to netip.AddrPort) bool {
	for _, a := range w.Node.ListenAddrs {
		if a == to.Addr() && w.Node.PortRange.Contains(to.Port()) {
			return true
		}
	}
	return false
}

// guarded is the way of a packet that talks to a listener past its portal.
func (w World) guarded(a *Answer, q Question) {
	a.Verdict = Refused
	a.step("portal", "none: this is where listeners stand, and not where clients ask")
	a.step("rule", w.Redirect+" refuses what comes to a listener past its portal")
	for _, port := range w.Ports {
		for _, portal := range port.Portals {
			p, ok := w.Prospect(port.Protocol, portal.Addr, netip.Addr{})
			if ok && port.Protocol == q.Protocol && p.Portal.Listener == q.To.String() {
				a.advise(fmt.Sprintf("ask for %s, which leads there for %s", portal.Addr, strings.TrimSuffix(port.PortName.String(), "/"+string(port.Protocol))))
				return
			}
		}
	}
}
