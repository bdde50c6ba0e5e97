package nftables

import (
	"fmt"
	"net/netip"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// The names of what is in a table. A map with loopback addresses is consulted
// for the node's own traffic only.
const (
	portalsMap   = "portals"
	deniedMap    = "denied"
	listenersSet = "listeners" // only where the listening address is shared
	rangedMap    = "ranged"    // portals to which not everyone may come
	sourcesSet   = "sources"   // who may
	podsSet      = "pods"      // addresses of pods on this node

	refuseChain         = "refuse"
	guardChain          = "guard"
	sourcesChain        = "sources"
	denyPreroutingChain = "deny_prerouting"
	denyOutputChain     = "deny_output"
	preroutingChain     = "prerouting"
	outputChain         = "output"
	inputChain          = "input"
	arrivedChain        = "arrived"
	repliesChain        = "replies" // only where own dials are made from clients' addresses
)

// loopback is the map beside a map that holds its loopback addresses.
func loopback(name string) string { return "loopback_" + name }

// outside is the map beside a map that holds what is for those outside alone. It
// is asked before that.
func outside(name string) string { return "outside_" + name }

// set is a set, or a map where it has a value.
type set struct {
	name, key, value string
	counted          bool // a counter on every element
	interval         bool // of ranges
}

// chain is a chain; a base chain where it has a hook. All policies are accept.
type chain struct {
	name, kind, hook string
	priority         int
}

// rule is one rule, with the reason that people see who list the table.
type rule struct{ chain, match, why string }

// table is everything in one family's table but its elements.
type table struct {
	sets   []set
	chains []chain
	rules  []rule
}

// words are what the families write differently.
type words struct{ nft, addrType, daddr, saddr, icmp string }

func wordsOf(f service.Family) words {
	if f == service.IPv6 {
		return words{nft: "ip6", addrType: "ipv6_addr", daddr: "ip6 daddr", saddr: "ip6 saddr", icmp: "icmpv6"}
	}
	return words{nft: "ip", addrType: "ipv4_addr", daddr: "ip daddr", saddr: "ip saddr", icmp: "icmp"}
}

// table is the table of one family.
func (c Config) table(f service.Family) table {
	w := wordsOf(f)
	t := table{sets: c.sets(w), chains: c.chains()}
	t.rules = append(t.rules, sourceRules(w)...)
	t.rules = append(t.rules, c.denyRules(w)...)
	t.rules = append(t.rules, c.portalRules(w)...)
	t.rules = append(t.rules, passageRules(w, c.Listen[f])...)
	t.rules = append(t.rules, c.guardRules(w, c.Listen[f])...)
	t.rules = append(t.rules, c.replyRules()...)
	return t
}

// sets are hash tables, but for those of ranges, which are trees and bitmaps: a
// packet costs the same however many portals there are.
func (c Config) sets(w words) []set {
	portal := w.addrType + " . inet_proto . inet_service"
	var sets []set
	for _, name := range []string{portalsMap, loopback(portalsMap), outside(portalsMap)} {
		sets = append(sets, set{name: name, key: portal, value: w.addrType + " . inet_service", counted: true})
	}
	for _, name := range []string{deniedMap, loopback(deniedMap), outside(deniedMap), rangedMap} {
		sets = append(sets, set{name: name, key: portal, value: "verdict", counted: true})
	}
	sets = append(sets,
		set{name: sourcesSet, key: portal + " . " + w.addrType, interval: true},
		set{name: podsSet, key: w.addrType, interval: true})
	if c.SharedListen {
		sets = append(sets, set{name: listenersSet, key: "inet_proto . inet_service"})
	}
	return sets
}

func (c Config) chains() []chain {
	all := []chain{
		{name: refuseChain},
		{name: guardChain},
		{name: sourcesChain},
		// Before -100 (dstnat), where other tables may translate too: a portal
		// that is refused is refused under the address that the client used.
		{name: denyPreroutingChain, kind: "filter", hook: "prerouting", priority: -110},
		{name: denyOutputChain, kind: "filter", hook: "output", priority: -110},
		{name: preroutingChain, kind: "nat", hook: "prerouting", priority: -100},
		{name: outputChain, kind: "nat", hook: "output", priority: -100},
		// Before 0 (filter), where a host firewall has its own accepts.
		{name: inputChain, kind: "filter", hook: "input", priority: -5},
		// After every firewall: the security tables are at 50, and few are later.
		{name: arrivedChain, kind: "filter", hook: "input", priority: 1000},
	}
	if c.Replies != 0 {
		// After connection tracking (-200), whose addresses the look for a socket
		// goes by where the proxy's packets were translated on their way out.
		all = append(all, chain{name: repliesChain, kind: "filter", hook: "prerouting", priority: -150})
	}
	return all
}

// replyRules mark what comes in for a connection that was made from a client's
// address, which it is addressed to. Policy routing delivers it to this node. A
// socket that listens on all addresses, a transparent proxy's, is not meant.
func (c Config) replyRules() []rule {
	if c.Replies == 0 {
		return nil
	}
	mark := fmt.Sprintf("socket wildcard 0 socket transparent 1 meta mark set meta mark | 0x%08x", c.Replies)
	return []rule{{repliesChain, mark, "replies to dials from clients' addresses"}}
}

// lookup finds a packet's destination in a map.
func lookup(w words) string { return w.daddr + " . meta l4proto . th dport" }

// skipOwnDials keeps the proxy's own connections to endpoints away from the
// portals: an endpoint may have the address of one, and they would come back.
func skipOwnDials(chain string, mark uint32) rule {
	return rule{chain, fmt.Sprintf("meta mark & 0x%08x == 0x%08x return", mark, mark), "own dials go to endpoints, never to portals"}
}

// sourceRules drop who may not come to a portal, before anything else is decided.
func sourceRules(w words) []rule {
	return []rule{
		{sourcesChain, lookup(w) + " . " + w.saddr + " @" + sourcesSet + " return", "who may come"},
		{sourcesChain, "counter drop", "and nobody else"},
	}
}

// fromOutside matches what does not come from a pod on this node. The node's own
// traffic never passes where it is asked.
func (c Config) fromOutside(w words) string {
	if c.LocalPods.Interface != "" {
		return fmt.Sprintf("iifname != %q ", c.LocalPods.Interface)
	}
	return w.saddr + " != @" + podsSet + " "
}

// denyRules refuse and drop. They look at new traffic only: a connection that
// was let in before its portal was denied ends by itself.
//
// The node's own UDP is refused too, but the kernel tells the sender twice:
// the packet that output stops is EPERM on send, the port unreachable that
// answers it is ECONNREFUSED on the next call.
func (c Config) denyRules(w words) []rule {
	deny := func(name string) string { return "ct state new " + lookup(w) + " vmap @" + name }
	return []rule{
		{refuseChain, "meta l4proto tcp reject with tcp reset", "a connect fails at once"},
		{refuseChain, "reject with " + w.icmp + " type port-unreachable", "and so does a datagram"},

		// A packet on lo passed output before; an own dial that was skipped
		// there must not be caught here.
		{denyPreroutingChain, `iif "lo" return`, "the node's own traffic was judged in output"},
		{denyPreroutingChain, deny(rangedMap), "who may come to these portals"},
		{denyPreroutingChain, c.fromOutside(w) + deny(outside(deniedMap)), "refused or dropped portals, from outside"},
		{denyPreroutingChain, deny(deniedMap), "refused or dropped portals, from neighbours and pods"},

		skipOwnDials(denyOutputChain, c.Mark),
		{denyOutputChain, deny(rangedMap), "who may come to these portals"},
		{denyOutputChain, deny(deniedMap), "refused or dropped portals, from this node"},
		{denyOutputChain, deny(loopback(deniedMap)), "the same on loopback addresses"},
	}
}

// portalRules lead portals to listeners. It is a translation to one address of
// our own, not a redirect: that needs an address on the interface the packet
// came by, which pods' interfaces may lack, and leads the node's own traffic
// to 127.0.0.1 (docs/adr/0006-dnat-to-own-address.md).
//
// Prerouting never looks at loopback portals. It sees a frame that a neighbour
// sent to 127.0.0.1 before the kernel finds it impossible, and a translated
// one would be possible.
func (c Config) portalRules(w words) []rule {
	dnat := func(name string) string { return "dnat " + w.nft + " to " + lookup(w) + " map @" + name }
	return []rule{
		{preroutingChain, c.fromOutside(w) + dnat(outside(portalsMap)), "portals to listeners, from outside"},
		{preroutingChain, dnat(portalsMap), "portals to listeners, from neighbours and pods"},

		skipOwnDials(outputChain, c.Mark),
		{outputChain, dnat(portalsMap), "portals to listeners, from this node"},
		{outputChain, dnat(loopback(portalsMap)), "loopback portals are for this node alone"},
	}
}

// passageRules count what portals have led here from outside, before and after
// the firewalls of the node: see passage. The node's own traffic would pass many
// that others' does not.
func passageRules(w words, listen netip.Addr) []rule {
	count := fmt.Sprintf(`%s %s iif != "lo" ct state new ct status dnat counter`, w.daddr, listen)
	return []rule{
		{inputChain, count, "came by a portal from outside"},
		{arrivedChain, count, "and passed every firewall"},
	}
}

// guardRules keep listeners for traffic that came by a portal. Without them
// whoever can route to the listening address reaches a Service past what the
// portal's rules say of it; and after a crash whoever takes a port in the
// range would be open to the network.
//
// What is not known to have been translated is refused, so that a packet
// without connection tracking does not slip through. Replies are let through:
// they are to connections that the node itself opened from this address.
func (c Config) guardRules(w words, listen netip.Addr) []rule {
	ports := "meta l4proto { tcp, udp } th dport " + c.Ports.String()
	if c.SharedListen {
		ports = "meta l4proto . th dport @" + listenersSet
	}
	return []rule{
		{inputChain, fmt.Sprintf("%s %s %s goto %s", w.daddr, listen, ports, guardChain), "listeners answer only translated traffic"},

		{guardChain, "ct status dnat return", "came by a portal"},
		{guardChain, "ct direction reply return", "answers the node's own connection"},
		{guardChain, "meta l4proto tcp counter reject with tcp reset", "talks to a listener past its portal"},
		{guardChain, "counter reject with " + w.icmp + " type port-unreachable", "talks to a listener past its portal"},
	}
}
