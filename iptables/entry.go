package iptables

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-multierror"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// Portal is an address and port of a Service, and the protocol that is served
// there.
type Portal struct {
	Addr     netip.AddrPort
	Protocol service.Protocol
}

func (p Portal) compare(o Portal) int {
	return cmp.Or(p.Addr.Compare(o.Addr), cmp.Compare(p.Protocol, o.Protocol))
}

func (p Portal) family() service.Family { return service.FamilyOf(p.Addr.Addr()) }

// entry is what one redirect comes to: one rule in one chain.
type entry struct {
	Portal
	action   service.Action
	listener netip.AddrPort // where the action is ToListener
	service  service.PortName
}

func (e entry) compare(o entry) int {
	return cmp.Or(
		cmp.Compare(e.service.String(), o.service.String()),
		e.Portal.compare(o.Portal),
		cmp.Compare(e.action, o.action),
		e.listener.Compare(o.listener),
	)
}

// entries are what the redirects come to, by portal. Redirects that cannot be
// expressed are left out and named in the error; the others are whole.
// Redirects of a family without a listening address are skipped.
func (c Config) entries(redirects []service.Redirect) ([]entry, error) {
	claims := make(map[Portal]entry, len(redirects))
	var faults *multierror.Error
	leaveOut := func(s service.PortName, portal netip.AddrPort, why string) {
		faults = multierror.Append(faults, fmt.Errorf("redirect of %q at %q left out: %s", s, portal, why))
	}
	for _, r := range redirects {
		e, why := c.entry(r)
		if why != "" {
			leaveOut(r.Service, r.Portal, why)
			continue
		}
		if _, served := c.Listen[e.family()]; !served {
			continue
		}
		if first, taken := claims[e.Portal]; taken && first != e {
			// Resolve lets only one Service have a portal. Whoever calls
			// without it gets the same winner in whatever order.
			if first.compare(e) > 0 {
				first, e = e, first
			}
			leaveOut(e.service, e.Addr, "another redirect has the portal")
			e = first
		}
		claims[e.Portal] = e
	}
	list := slices.SortedFunc(maps.Values(claims), func(a, b entry) int { return a.Portal.compare(b.Portal) })
	return list, inOrder(faults)
}

// entry is what one redirect comes to, or why it cannot be expressed.
func (c Config) entry(r service.Redirect) (entry, string) {
	addr := r.Portal.Addr().Unmap()
	e := entry{
		Portal:  Portal{netip.AddrPortFrom(addr, r.Portal.Port()), r.Protocol},
		action:  r.Action,
		service: r.Service,
	}
	switch {
	case !addr.IsValid(), addr.Zone() != "", addr.IsUnspecified(), addr.IsMulticast():
		return e, "not an address that a portal can have"
	case r.Portal.Port() == 0:
		return e, "no port"
	case r.Protocol != service.TCP && r.Protocol != service.UDP:
		return e, fmt.Sprintf("no protocol %q here", r.Protocol)
	}
	switch r.Action {
	case service.Refuse, service.Drop:
	case service.ToListener:
		e.listener = netip.AddrPortFrom(r.Listener.Addr().Unmap(), r.Listener.Port())
		if listen, served := c.Listen[e.family()]; served && (e.listener.Addr() != listen || !c.Ports.Contains(e.listener.Port())) {
			return e, fmt.Sprintf("listener %q is not on %q with a port of %s, so that nothing guards it", r.Listener, listen, c.Ports)
		}
	default:
		return e, fmt.Sprintf("no action %q", r.Action)
	}
	return e, ""
}

// rule is the entry's rule: it matches the portal as a whole, wherever in the
// tree it stands. (It is written for each entry at each Sync, so without fmt.)
func (c Config) rule(e *entry) string {
	proto := e.Protocol.Lower()
	return "-d " + netip.PrefixFrom(e.Addr.Addr(), e.Addr.Addr().BitLen()).String() +
		" -p " + proto + " -m " + proto + " --dport " + strconv.Itoa(int(e.Addr.Port())) +
		` -m comment --comment "` + e.comment() + `" -j DNAT --to-destination ` + c.target(e).String()
}

// target is where the entry's packets are led.
func (c Config) target(e *entry) netip.AddrPort {
	refuse, drop := c.sinks()
	switch e.action {
	case service.ToListener:
		return e.listener
	case service.Refuse:
		return netip.AddrPortFrom(c.Listen[e.family()], refuse)
	default:
		return netip.AddrPortFrom(c.Listen[e.family()], drop)
	}
}

// maxComment is what the kernel takes as a comment, in bytes.
const maxComment = 255

// comment names the service, and what is done to its traffic, to people who
// list the rules. What iptables-restore could take for syntax becomes a
// question mark.
func (e entry) comment() string {
	s := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', strings.ContainsRune("-_.:/", r):
			return r
		}
		return '?'
	}, e.service.String())
	var end string
	switch e.action {
	case service.Refuse:
		end = " refused"
	case service.Drop:
		end = " dropped"
	}
	if len(s)+len(end) > maxComment {
		s = s[:maxComment-len(end)-1] + "~"
	}
	return s + end
}
