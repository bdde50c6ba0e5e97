package iptables

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/userspace-proxy/userspace-proxy/internal/redirects"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// Portal is an address and port of a Service, and the protocol that is served
// there.
type Portal struct {
	Addr     netip.AddrPort
	Protocol service.Protocol
}

func (p Portal) family() service.Family { return service.FamilyOf(p.Addr.Addr()) }

// entry is what one redirect comes to: one rule in one chain.
type entry struct {
	Portal
	action   service.Action
	listener netip.AddrPort // where the action is ToListener
	service  service.PortName
}

// entries are what the redirects come to, by portal. Those that cannot be
// expressed are left out and named in the error.
func (c Config) entries(all []service.Redirect) ([]entry, error) {
	settled, err := redirects.Settle(all, redirects.Place{Listen: c.Listen, Ports: c.Ports})
	list := make([]entry, len(settled))
	for i, r := range settled {
		list[i] = entry{Portal: Portal{r.Portal, r.Protocol}, action: r.Action, listener: r.Listener, service: r.Service}
	}
	return list, err
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
