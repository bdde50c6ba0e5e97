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

// claim holds the ports of all portals that may be on this node's addresses, of
// which isHere tells. It tries again what was refused, and what was not this
// node's, every time.
func (c *claims) claim(b *budget, isHere func(netip.Addr) bool, desired map[service.Key]service.Port) []service.Problem {
	clear(c.refused)
	for _, port := range desired {
		for _, portal := range port.Portals {
			if portal.Kind == service.ClusterIP && !portal.Addr.Addr().IsLoopback() {
				continue // never a node's own
			}
			if err := c.hold(b, claim{port.Protocol, portal.Addr}); err != nil && mayBeHere(err, isHere(portal.Addr.Addr())) {
				c.refused[claim{port.Protocol, portal.Addr}] = socketProblem(port, portal, err)
			}
		}
	}
	return slices.SortedFunc(maps.Values(c.refused), service.Problem.Compare)
}

// mayBeHere says whether a port that could not be held is one of this node's. On an
// address that no interface has it is only if somebody has it: the kernel may say
// that a low port needs a right, or have no descriptor, before it looks for the
// address, and then another node's would be refused here.
func mayBeHere(err error, isHere bool) bool {
	return !errors.Is(err, syscall.EADDRNOTAVAIL) && (isHere || errors.Is(err, syscall.EADDRINUSE))
}

func (c *claims) hold(b *budget, at claim) error {
	if c.held[at] != nil {
		return nil
	}
	if !b.takeListener() {
		return errBudget
	}
	sock, err := openHeld(at)
	if err != nil {
		b.giveListener()
		return err
	}
	c.held[at] = sock
	return nil
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
