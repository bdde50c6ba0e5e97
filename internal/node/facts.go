package node

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// Facts are what is true of the node at one moment.
type Facts struct {
	Name    string                        // as endpoints name their node
	Primary map[service.Family]netip.Addr // its own address in each family; absent: it has none
	Local   []netip.Addr                  // all of its addresses, sorted
}

// Options say how to look.
type Options struct {
	// Hostname is the node's name where its host name is not.
	Hostname string
	// Prefer are addresses that somebody who knows says are the node's own. In
	// each family the first that it has wins.
	Prefer []netip.Addr
	// Own are addresses that the proxy keeps for its listeners. They are local
	// and never the node's own address.
	Own []netip.Addr
	// Loopback makes a loopback address the node's own in a family in which it
	// has no other, so that a machine without a network can be served.
	Loopback bool
}

// link is a network interface, as far as it matters here.
type link struct {
	loopback bool
	addrs    []netip.Addr
}

// factsOf puts together what was read: the host name, the links that are up in
// their order, and by family the address that packets to far away leave with.
func factsOf(o Options, hostname string, links []link, outbound map[service.Family]netip.Addr) (Facts, error) {
	facts := Facts{
		Name:    strings.ToLower(strings.TrimSpace(cmp.Or(o.Hostname, hostname))),
		Primary: map[service.Family]netip.Addr{},
	}
	if facts.Name == "" {
		return Facts{}, errors.New("this machine has no host name: give the node's name with --hostname-override")
	}
	for _, l := range links {
		facts.Local = append(facts.Local, l.addrs...)
	}
	slices.SortFunc(facts.Local, netip.Addr.Compare)
	facts.Local = slices.Compact(facts.Local)

	for _, f := range service.Families() {
		if a, ok := primary(f, o, links, outbound[f]); ok {
			facts.Primary[f] = a
		}
	}
	return facts, nil
}

// primary is the node's own address in a family: one that is preferred, else the
// one that its default route leaves with, else the first that others can reach it by.
func primary(f service.Family, o Options, links []link, outbound netip.Addr) (netip.Addr, bool) {
	fits := func(a netip.Addr) bool {
		return service.FamilyOf(a) == f && !slices.Contains(o.Own, a) && !a.IsLoopback() && !a.IsLinkLocalUnicast()
	}
	for _, a := range append(slices.Clone(o.Prefer), outbound) {
		known := func(l link) bool { return slices.Contains(l.addrs, a) }
		if fits(a) && slices.ContainsFunc(links, known) {
			return a, true
		}
	}
	// Routers keep an address that all their links lead to on the loopback
	// interface; it comes after those of the links.
	for _, onLoopback := range []bool{false, true} {
		for _, l := range links {
			if i := slices.IndexFunc(l.addrs, fits); i >= 0 && l.loopback == onLoopback {
				return l.addrs[i], true
			}
		}
	}
	if !o.Loopback {
		return netip.Addr{}, false
	}
	for _, l := range links {
		for _, a := range l.addrs {
			if a.IsLoopback() && service.FamilyOf(a) == f {
				return a, true
			}
		}
	}
	return netip.Addr{}, false
}
