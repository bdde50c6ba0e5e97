package proxy

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// listener is one bound address of one service port. It is born held, which
// means that it refuses. Except for its own goroutines, one goroutine at a
// time uses it: the Proxier's.
type listener interface {
	addr() netip.AddrPort
	// serve makes a held listener take traffic, hold the reverse. Either does
	// nothing where it is so already; on an error the listener is as it was.
	serve() error
	hold() error
	isServing() bool
	// isBroken says whether it serves and its socket does not listen any more:
	// whoever may close other programs' sockets (ss -K) has done so.
	isBroken() bool
	// endpointsChanged ends what must not outlive its endpoint, or a change of who
	// may have which.
	endpointsChanged(keep func(client netip.Addr, endpoint netip.AddrPort) bool)
	// countFlows adds the UDP flows to each endpoint; at any time, by anyone.
	countFlows(to map[netip.AddrPort]int)
	// flows lists UDP flows, most of them at most; at any time, by anyone.
	flows(most int) []FlowStatus
	// close frees the address. What the listener has accepted goes on.
	close()
}

// listen opens a held listener.
func (p *Proxier) listen(key service.Key, addr netip.AddrPort, group balancer) (listener, error) {
	if !p.shared.budget.takeListener() {
		return nil, errBudget
	}
	var l listener
	var err error
	if key.Protocol == service.UDP {
		l, err = newUDPListener(key, addr, group, p.shared.accounts.of(key.PortName), p.shared)
	} else {
		l, err = newTCPListener(key, addr, group, p.shared.limits.service(key), p.shared.accounts.of(key.PortName), p.shared)
	}
	if err != nil {
		p.shared.budget.giveListener()
		return nil, err
	}
	return l, nil
}

var errBudget = errors.New("no descriptor is left for a listener")

// socketProblem says why a portal has no socket, for the person who can help it.
func socketProblem(port service.Port, portal service.Portal, err error) service.Problem {
	problem := service.Problem{
		Object:  "Service " + port.Namespace + "/" + port.Name,
		Detail:  fmt.Sprintf("%s port %q is not served on %s: %v", port.Protocol, port.Port, portal, err),
		Service: service.ServiceRef{Source: port.Source, Namespace: port.Namespace, Name: port.Name},
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		problem.Reason = "PortTaken"
		problem.Advice = "another program on this node listens there: stop it or give the Service another port"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		problem.Reason = "AddressNotLocal"
		problem.Advice = "without rules an address is served only where it is this node's own: add it to an interface, or run with --redirect=nftables"
	case errors.Is(err, syscall.EACCES):
		problem.Reason = "NoRight"
		problem.Advice = "ports below net.ipv4.ip_unprivileged_port_start need root or CAP_NET_BIND_SERVICE"
	case errors.Is(err, errBudget):
		problem.Reason = "DescriptorsUsedUp"
		problem.Advice = "raise the limit on open files (ulimit -n, LimitNOFILE); listeners may have three quarters of it"
	default:
		problem.Reason = "CannotListen"
	}
	return problem
}
