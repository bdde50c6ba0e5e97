package nftables

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-multierror"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// key names what an element is about, in whatever set it is: a portal, or a
// listener where the guard needs to know it.
type key struct {
	addr    netip.AddrPort
	proto   service.Protocol
	guarded bool // a listener
}

// element is one entry of a set or map in the table of its address's family:
// what one redirect comes to.
type element struct {
	key
	set      string
	action   service.Action
	listener netip.AddrPort
	service  service.PortName
}

func (k key) family() service.Family { return service.FamilyOf(k.addr.Addr()) }

// compare is the order of a script.
func (e element) compare(o element) int {
	return cmp.Or(
		cmp.Compare(e.family(), o.family()),
		cmp.Compare(e.set, o.set),
		e.addr.Compare(o.addr),
		cmp.Compare(e.proto, o.proto),
	)
}

// precedes says which of two redirects has a portal that both claim. Resolve
// lets only one Service have it; whoever calls without Resolve gets the same
// winner in whatever order.
func (e element) precedes(o element) bool {
	return cmp.Or(
		cmp.Compare(e.service.String(), o.service.String()),
		cmp.Compare(e.action, o.action),
		e.listener.Compare(o.listener),
	) < 0
}

// match is the element's left side, as nft writes it.
func (e element) match() []string {
	port := strconv.Itoa(int(e.addr.Port()))
	if e.guarded {
		return []string{e.proto.Lower(), port}
	}
	return []string{e.addr.Addr().String(), e.proto.Lower(), port}
}

// value is the element's right side; empty in a set.
func (e element) value() []string {
	switch {
	case e.guarded:
		return nil
	case e.action == service.ToListener:
		return []string{e.listener.Addr().String(), strconv.Itoa(int(e.listener.Port()))}
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
	if e.guarded {
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
		if _, served := c.Listen[e.family()]; !served {
			continue
		}
		if first, taken := all[e.key]; taken && first != e {
			if e.precedes(first) {
				first, e = e, first
			}
			leaveOut(e.service, e.addr, "another redirect has the portal")
			e = first
		}
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
	var listeners []key
	for _, e := range all {
		if e.action == service.ToListener {
			listeners = append(listeners, key{addr: e.listener, proto: e.proto, guarded: true})
		}
	}
	for _, k := range listeners {
		all[k] = element{key: k, set: listenersSet}
	}
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
	switch r.Action {
	case service.Refuse, service.Drop:
		e.set = deniedMap
	case service.ToListener:
		e.set = portalsMap
		e.listener = netip.AddrPortFrom(r.Listener.Addr().Unmap(), r.Listener.Port())
		if listen, served := c.Listen[e.family()]; served && (e.listener.Addr() != listen || !c.Ports.Contains(e.listener.Port())) {
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
	slices.SortFunc(list, element.compare)
	return list
}
