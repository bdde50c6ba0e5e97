package proxy

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"syscall"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// claim is a portal on an address of this node, while rules lead its traffic
// elsewhere.
type claim struct {
	protocol service.Protocol
	addr     netip.AddrPort
}

// claims keep the ports of portals on this node's own addresses (node ports,
// external IPs that are the node's) from other programs, and find those that
// another program has already: its traffic must not be led away.
type claims struct {
	held    map[claim]closer // those on an address of this node
	refused map[claim]service.Problem
}

func newClaims() *claims {
	return &claims{held: make(map[claim]closer), refused: make(map[claim]service.Problem)}
}

// taken tells whether a portal's port is somebody else's, and what to say of it.
func (c *claims) taken(protocol service.Protocol, addr netip.AddrPort) (service.Problem, bool) {
	problem, ok := c.refused[claim{protocol, addr}]
	return problem, ok
}

// claim holds the ports of all portals that may be on this node's addresses.
// It tries again what was refused, and what was not this node's, every time.
func (c *claims) claim(b *budget, desired map[service.Key]service.Port) []service.Problem {
	clear(c.refused)
	for _, port := range desired {
		for _, portal := range port.Portals {
			if portal.Kind == service.ClusterIP && !portal.Addr.Addr().IsLoopback() {
				continue // never a node's own
			}
			c.hold(b, port, portal)
		}
	}
	return slices.SortedFunc(maps.Values(c.refused), service.Problem.Compare)
}

func (c *claims) hold(b *budget, port service.Port, portal service.Portal) {
	at := claim{port.Protocol, portal.Addr}
	if c.held[at] != nil {
		return
	}
	if !b.takeListener() {
		c.refused[at] = socketProblem(port, portal, errBudget)
		return
	}
	sock, err := openHeld(at)
	if err == nil {
		c.held[at] = sock
		return
	}
	b.giveListener()
	if !errors.Is(err, syscall.EADDRNOTAVAIL) {
		c.refused[at] = socketProblem(port, portal, err)
	}
}

// release lets go of the ports that no portal wants.
func (c *claims) release(b *budget, desired map[service.Key]service.Port) {
	wanted := make(map[claim]bool)
	for key, port := range desired {
		for _, portal := range port.Portals {
			wanted[claim{key.Protocol, portal.Addr}] = true
		}
	}
	for at, sock := range c.held {
		if !wanted[at] {
			_ = sock.close()
			b.giveListener()
			delete(c.held, at)
		}
	}
}

type closer interface{ close() error }

func openHeld(at claim) (closer, error) {
	if at.protocol == service.UDP {
		return openUDP(at.addr)
	}
	return openTCP(at.addr)
}
