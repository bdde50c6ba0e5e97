package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/userspace-proxy/userspace-proxy/config"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// elsewhere is for a packet that no portal waits for. It looks for what the
// person who asks may have meant.
func (w World) elsewhere(a *Answer, q Question) {
	a.Verdict = Elsewhere
	a.step("portal", fmt.Sprintf("none: no Service is served at %s %s", q.Protocol, q.To))
	if w.isLocal(q.To.Addr()) {
		a.step("route", "it is for this node, and comes to whatever program listens there; if none does, the kernel refuses it")
	} else {
		a.step("route", "it goes where the node's routes lead it, unchanged")
	}
	if !w.Complete {
		a.advise("wait: not every source of Services has said yet what there is")
	}
	w.reported(a, q)
	w.otherPortals(a, q)
	for _, port := range w.Ports {
		if port.Protocol == q.Protocol && slices.ContainsFunc(port.Endpoints, func(e service.Endpoint) bool { return e.Addr == q.To }) {
			a.advise(fmt.Sprintf("it is an endpoint of %s: whoever can reach it does so without this proxy", port.PortName))
			break
		}
	}
	if len(a.Advice) == 0 {
		a.advise("a Service with this address and port would make it served")
	}
}

// reported adds the problems that name the address.
func (w World) reported(a *Answer, q Question) {
	const most = 3
	for _, p := range w.Problems {
		if len(a.Advice) < most && names(p.Detail, q.To.String()) && strings.Contains(p.Detail, string(q.Protocol)) {
			a.advise(p.String())
		}
	}
}

// reportedOf adds why a Service has no endpoints, and says whether anything is
// reported of them.
func (w World) reportedOf(a *Answer, name service.PortName) (found bool) {
	ofEndpoints := []string{config.ReasonPortNameMismatch, config.ReasonRefusedEndpoint, config.ReasonEndpointLoop, config.ReasonUnsupportedAddressType}
	for _, p := range w.Problems {
		if p.Service.Namespace == name.Namespace && p.Service.Name == name.Name && slices.Contains(ofEndpoints, p.Reason) {
			a.advise(p.String())
			found = true
		}
	}
	return found
}

// names says whether a text has an address in it, and not as a part of another.
func names(text, address string) bool {
	before, after, found := strings.Cut(text, address)
	return found && !strings.HasSuffix(before, ".") && (after == "" || after[0] < '0' || after[0] > '9') &&
		(before == "" || before[len(before)-1] < '0' || before[len(before)-1] > '9')
}

// otherPortals adds what is served nearly there.
func (w World) otherPortals(a *Answer, q Question) {
	var ports, nodes []string
	for _, port := range w.Ports {
		for _, portal := range port.Portals {
			sameAddr, samePort, sameProtocol := portal.Addr.Addr() == q.To.Addr(), portal.Addr.Port() == q.To.Port(), port.Protocol == q.Protocol
			switch {
			case sameAddr && samePort:
				a.advise(fmt.Sprintf("%s %s is served, as %s: ask for that", port.Protocol, portal.Addr, port.PortName))
			case sameAddr && sameProtocol:
				ports = append(ports, fmt.Sprintf("%d (%s)", portal.Addr.Port(), port.PortName))
			case portal.Kind == service.NodePort && samePort && sameProtocol && w.isLocal(q.To.Addr()):
				nodes = append(nodes, portal.Addr.String())
			}
		}
	}
	if len(ports) > 0 {
		a.advise(fmt.Sprintf("this address has other %s ports: %s", q.Protocol, some(ports)))
	}
	if len(nodes) > 0 {
		a.advise(fmt.Sprintf("%d is a node port that is served at %s only: --nodeport-addresses says where", q.To.Port(), some(nodes)))
	}
}

// some are the first of many.
func some(all []string) string {
	const most = 5
	if len(all) > most {
		all = append(slices.Clone(all[:most]), fmt.Sprintf("and %d more", len(all)-most))
	}
	return strings.Join(all, ", ")
}
