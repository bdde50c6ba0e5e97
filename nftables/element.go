package nftables

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// key names one element of one set in one family's table.
type key struct {
	family service.Family
	set    string
	addr   netip.AddrPort
	proto  service.Protocol
}

// element is one entry of a set or map: what one redirect comes to.
type element struct {
	key
	action   service.Action
	listener netip.AddrPort
	service  service.PortName
}

func (k key) compare(o key) int {
	return cmp.Or(
		cmp.Compare(k.family, o.family),
		cmp.Compare(k.set, o.set),
		k.addr.Compare(o.addr),
		cmp.Compare(k.proto, o.proto),
	)
}

// match is the element's left side, as nft writes it.
func (k key) match() []string {
	port := fmt.Sprint(k.addr.Port())
	if k.set == listenersSet {
		return []string{k.proto.Lower(), port}
	}
	return []string{k.addr.Addr().String(), k.proto.Lower(), port}
}

// value is the element's right side; empty in a set.
func (e element) value() []string {
	switch {
	case e.set == listenersSet:
		return nil
	case e.action == service.ToListener:
		return []string{e.listener.Addr().String(), fmt.Sprint(e.listener.Port())}
	case e.action == service.Refuse:
		return []string{"goto " + refuseChain}
	default:
		return []string{"drop"}
	}
}

// maxComment is what nft accepts as a comment, in bytes.
const maxComment = 128

// comment names the service to people who list the table. What nft could take
// for syntax becomes a question mark: quoted strings have no escapes there.
func (e element) comment() string {
	if e.set == listenersSet {
		return ""
	}
	s := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', strings.ContainsRune("-_.:/", r):
			return r
		}
		return '?'
	}, e.service.String())
	if len(s) > maxComment {
		s = s[:maxComment-1] + "~"
	}
	return s
}

// elements are what the redirects come to, by key. Redirects that cannot be
// expressed are left out and named in the error; the others are whole.
// Redirects of a family without a listening address are skipped.
func (c Config) elements(redirects []service.Redirect) (map[key]element, error) {
	all := make(map[key]element, len(redirects))
	claims := make(map[key]element, len(redirects)) // by portal, whatever its action
	var faults *multierror.Error
	leaveOut := func(s service.PortName, portal netip.AddrPort, why string) {
		faults = multierror.Append(faults, fmt.Errorf("redirect of %q at %q left out: %s", s, portal, why))
	}
	for _, r := range redirects {
		e, why := c.element(r)
		if why != "" {
			leaveOut(r.Service, r.Portal, why)
			continue
		}
		if _, served := c.Listen[e.family]; !served {
			continue
		}
		portal := e.key
		portal.set = ""
		if first, taken := claims[portal]; taken && first != e {
			// Resolve lets only one Service have a portal. Whoever calls
			// without it gets the same winner in whatever order.
			if first.compare(e) > 0 {
				first, e = e, first
				delete(all, e.key)
			}
			leaveOut(e.service, e.addr, "another redirect has the portal")
			e = first
		}
		claims[portal] = e
		all[e.key] = e
	}
	if c.SharedListen {
		c.addListeners(all)
	}
	return all, inOrder(faults)
}

// inOrder is the error of some faults, each once, in whatever order they were
// found.
func inOrder(faults *multierror.Error) error {
	if faults != nil {
		slices.SortFunc(faults.Errors, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
		faults.Errors = slices.CompactFunc(faults.Errors, func(a, b error) bool { return a.Error() == b.Error() })
	}
	return faults.ErrorOrNil()
}

// addListeners adds the ports that the guard covers where it does not cover
// the whole range.
func (c Config) addListeners(all map[key]element) {
	var ports []key
	for _, e := range all {
		if e.action == service.ToListener {
			ports = append(ports, key{family: e.family, set: listenersSet, addr: e.listener, proto: e.proto})
		}
	}
	for _, k := range ports {
		all[k] = element{key: k}
	}
}

func (e element) compare(o element) int {
	return cmp.Or(
		cmp.Compare(e.service.String(), o.service.String()),
		e.key.compare(o.key),
		cmp.Compare(e.action, o.action),
		e.listener.Compare(o.listener),
	)
}

// element is what one redirect comes to, or why it cannot be expressed.
func (c Config) element(r service.Redirect) (element, string) {
	addr := r.Portal.Addr().Unmap()
	e := element{
		key:     key{addr: netip.AddrPortFrom(addr, r.Portal.Port()), proto: r.Protocol},
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
	e.family = service.FamilyOf(addr)
	switch r.Action {
	case service.Refuse, service.Drop:
		e.set = deniedMap
	case service.ToListener:
		e.set = portalsMap
		e.listener = netip.AddrPortFrom(r.Listener.Addr().Unmap(), r.Listener.Port())
		if listen, served := c.Listen[e.family]; served && (e.listener.Addr() != listen || !c.Ports.Contains(e.listener.Port())) {
			return e, fmt.Sprintf("listener %q is not on %q with a port of %s, so that nothing guards it", r.Listener, listen, c.Ports)
		}
	default:
		return e, fmt.Sprintf("no action %q", r.Action)
	}
	if addr.IsLoopback() {
		e.set = loopback(e.set)
	}
	return e, ""
}

// sorted are elements in the order of a script.
func sorted(all map[key]element) []element {
	list := make([]element, 0, len(all))
	for _, e := range all {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b element) int { return a.key.compare(b.key) })
	return list
}
