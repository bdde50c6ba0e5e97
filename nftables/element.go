package nftables

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/userspace-proxy/userspace-proxy/internal/redirects"
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

// elements are what the redirects come to, by key. Those that cannot be
// expressed are left out and named in the error.
func (c Config) elements(all []service.Redirect) (map[key]element, error) {
	settled, err := redirects.Settle(all, redirects.Place{Listen: c.Listen, Ports: c.Ports})
	elements := make(map[key]element, len(settled))
	for _, r := range settled {
		e := element{
			key: key{addr: r.Portal, proto: r.Protocol}, set: deniedMap,
			action: r.Action, listener: r.Listener, service: r.Service,
		}
		if e.action == service.ToListener {
			e.set = portalsMap
		}
		if e.addr.Addr().IsLoopback() {
			e.set = loopback(e.set)
		}
		elements[e.key] = e
	}
	if c.SharedListen {
		c.addListeners(elements)
	}
	return elements, err
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

// sorted are elements in the order of a script.
func sorted(all map[key]element) []element {
	list := make([]element, 0, len(all))
	for _, e := range all {
		list = append(list, e)
	}
	slices.SortFunc(list, element.compare)
	return list
}
