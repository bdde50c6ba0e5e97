package iptables

import (
	"crypto/sha256"
	"encoding/base32"
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

// entry is what one redirect comes to: one rule in one chain, and where not
// everyone may come another and a chain of who may.
type entry struct {
	Portal
	scope    service.Scope
	sources  service.SourceRanges
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
		list[i] = entry{Portal: Portal{r.Portal, r.Protocol}, scope: r.Scope, sources: r.Sources, action: r.Action, listener: r.Listener, service: r.Service}
	}
	return list, err
}

// match matches the portal as a whole, wherever in the tree it stands. (It is
// written for each entry at each Sync, so without fmt.)
func (p Portal) match() string {
	proto := p.Protocol.Lower()
	return "-d " + netip.PrefixFrom(p.Addr.Addr(), p.Addr.Addr().BitLen()).String() +
		" -p " + proto + " -m " + proto + " --dport " + strconv.Itoa(int(p.Addr.Port()))
}

// rule is the entry's rule.
func (c Config) rule(e *entry) string {
	return e.match() + ` -m comment --comment "` + e.comment(e.end()) + `" -j DNAT --to-destination ` + c.target(e).String()
}

// sourcesChain is the chain of who may come to the entry's portal.
func (e *entry) sourcesChain() string {
	sum := sha256.Sum256([]byte(e.Protocol.Lower() + e.Addr.String()))
	return sourcesBelow + base32.StdEncoding.EncodeToString(sum[:])[:10]
}

// sourceRule leads to it.
func (c Config) sourceRule(e *entry) string {
	return e.match() + ` -m comment --comment "` + e.comment("") + `" -g ` + e.sourcesChain()
}

// sourceRules are the rules there: from whom it may come goes on to where it is
// led, and anybody else's is dropped.
func (c Config) sourceRules(e *entry) []string {
	rules := make([]string, 0, len(e.sources.Allowed)+1)
	for _, from := range e.sources.Allowed {
		rules = append(rules, "-s "+from.String()+" -j RETURN")
	}
	_, drop := c.sinks()
	to := netip.AddrPortFrom(c.Listen[e.family()], drop)
	return append(rules, e.match()+` -m comment --comment "`+e.comment(" not from there")+`" -j DNAT --to-destination `+to.String())
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

// end is what is done to the traffic, for people.
func (e entry) end() string {
	end := map[service.Action]string{service.Refuse: " refused", service.Drop: " dropped"}[e.action]
	if e.scope == service.Outside {
		end += " from outside"
	}
	return end
}

// comment names the service, and what is done to its traffic, to people who
// list the rules. What iptables-restore could take for syntax becomes a
// question mark.
func (e entry) comment(end string) string {
	s := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', strings.ContainsRune("-_.:/", r):
			return r
		}
		return '?'
	}, e.service.String())
	if len(s)+len(end) > maxComment {
		s = s[:maxComment-len(end)-1] + "~"
	}
	return s + end
}
