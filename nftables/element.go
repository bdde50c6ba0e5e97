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

// key names what an element is about: a portal, for a scope; a listener, where the
// guard needs to know it; a portal and who may come to it; or a range of pods.
type key struct {
	kind  kind
	scope service.Scope
	addr  netip.AddrPort
	proto service.Protocol
	from  netip.Prefix // a range of sources, or of pods
}

// kind is what an element is about.
type kind int

const (
	portalKind kind = iota
	deniedKind      // a portal again, in the maps that are asked before it
	listenerKind
	rangedKind // a portal to which not everyone may come
	sourceKind // a portal, and a range that may
	podKind
)

// isSet says whether elements are in sets and not in maps: they have no value.
func (k kind) isSet() bool { return k == listenerKind || k == sourceKind || k == podKind }

// element is one entry of a set or map in the table of its family: what a
// redirect comes to, or a part of that.
type element struct {
	key
	set      string
	action   service.Action
	listener netip.AddrPort
	service  service.PortName
}

func (k key) family() service.Family {
	if k.kind == podKind {
		return service.FamilyOf(k.from.Addr())
	}
	return service.FamilyOf(k.addr.Addr())
}

// compare is the order of a script.
func (e element) compare(o element) int {
	return cmp.Or(
		cmp.Compare(e.family(), o.family()),
		cmp.Compare(e.set, o.set),
		e.addr.Compare(o.addr),
		cmp.Compare(e.proto, o.proto),
		e.from.Addr().Compare(o.from.Addr()),
		cmp.Compare(e.from.Bits(), o.from.Bits()),
	)
}

// match is the element's left side, as nft writes it.
func (e element) match() []string {
	port := strconv.Itoa(int(e.addr.Port()))
	switch e.kind {
	case listenerKind:
		return []string{e.proto.Lower(), port}
	case podKind:
		return []string{written(e.from)}
	case sourceKind:
		return []string{e.addr.Addr().String(), e.proto.Lower(), port, written(e.from)}
	}
	return []string{e.addr.Addr().String(), e.proto.Lower(), port}
}

// written is a range as nft prints it: one of a single address is that address.
func written(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// value is the element's right side; empty in a set.
func (e element) value() []string {
	switch {
	case e.kind.isSet():
		return nil
	case e.kind == rangedKind:
		return []string{"jump " + sourcesChain}
	case e.kind == deniedKind && e.action == service.ToListener:
		return []string{"accept"} // of this chain: portals come later
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
	if e.kind.isSet() {
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

// elements are what the redirects come to, by key, and the ranges of pods. Those
// that cannot be expressed are left out and named in the error.
func (c Config) elements(redirected []service.Redirect) (map[key]element, error) {
	settled, err := redirects.Settle(redirected, redirects.Place{Listen: c.Listen, Ports: c.Ports})
	elements := make(map[key]element, len(settled))
	add := func(e element) { elements[e.key] = e }
	for _, r := range settled {
		e := element{
			key: key{addr: r.Portal, proto: r.Protocol, scope: r.Scope}, set: portalsMap,
			action: r.Action, listener: r.Listener, service: r.Service,
		}
		if e.action != service.ToListener {
			e.kind, e.set = deniedKind, deniedMap
		}
		switch {
		case r.Scope == service.Outside:
			e.set = outside(e.set)
		case e.addr.Addr().IsLoopback():
			e.set = loopback(e.set)
		}
		add(e)
		if c.SharedListen && e.action == service.ToListener {
			add(element{key: key{kind: listenerKind, addr: e.listener, proto: e.proto}, set: listenersSet})
		}
		if r.Sources.Limited && r.Scope == service.Everyone && !e.addr.Addr().IsLoopback() {
			addSources(add, r)
		}
	}
	addExceptions(elements)
	for _, p := range c.LocalPods.Ranges {
		if _, served := c.Listen[service.FamilyOf(p.Addr())]; served {
			add(element{key: key{kind: podKind, from: p}, set: podsSet})
		}
	}
	return elements, err
}

// addSources adds who may come to a portal.
func addSources(add func(element), r service.Redirect) {
	k := key{kind: rangedKind, addr: r.Portal, proto: r.Protocol}
	add(element{key: k, set: rangedMap, service: r.Service})
	for _, p := range r.Sources.Allowed {
		k.kind, k.from = sourceKind, p
		add(element{key: k, set: sourcesSet})
	}
}

// addExceptions adds to what is denied that what comes from outside is not, where
// it is led to a listener and everyone else is denied.
func addExceptions(elements map[key]element) {
	var exceptions []element
	for k, e := range elements {
		if e.kind == deniedKind && e.scope == service.Everyone {
			k.kind, k.scope = portalKind, service.Outside
			if led, ok := elements[k]; ok {
				led.kind, led.set = deniedKind, outside(deniedMap)
				exceptions = append(exceptions, led)
			}
		}
	}
	for _, e := range exceptions {
		elements[e.key] = e
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
