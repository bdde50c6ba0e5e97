package iptables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// The names of our chains. They may have 28 bytes: those of the trees have
// the prefix, "P-", "L-", "O-" or "R-" and ten digits at most.
const (
	// ChainPrefix is what the name of each of our chains begins with, so that
	// Cleanup of any version finds them.
	ChainPrefix = "USERSPACE-PROXY-"

	portalsChain   = ChainPrefix + "PORTALS"
	everyoneChain  = ChainPrefix + "EVERYONE"
	portalsBelow   = ChainPrefix + "P-"
	loopbackChain  = ChainPrefix + "LOOPBACK"
	loopbackBelow  = ChainPrefix + "L-"
	outsideChain   = ChainPrefix + "OUTSIDE"
	outsideBelow   = ChainPrefix + "O-"
	rangedChain    = ChainPrefix + "RANGED"
	rangedBelow    = ChainPrefix + "R-"
	sourcesBelow   = ChainPrefix + "S-" // and ten letters
	outputChain    = ChainPrefix + "OUTPUT"
	inputChain     = ChainPrefix + "INPUT"
	guardChain     = ChainPrefix + "GUARD"
	sinksChain     = ChainPrefix + "SINKS"
	repliesChain   = ChainPrefix + "REPLIES"
	probeChain     = ChainPrefix + "T-" // and a process id
	maxChainLength = 28
)

// The tables, in the order in which they are written: what lets translated
// traffic in comes before what translates it.
const (
	filterTable = "filter"
	natTable    = "nat"
	mangleTable = "mangle"
)

// tables are those in which some version may have made rules.
func tables() []string { return []string{filterTable, natTable, mangleTable} }

// tables are those in which there are rules.
func (c Config) tables() []string {
	if c.Replies == 0 {
		return []string{filterTable, natTable}
	}
	return tables()
}

// place is where rules are.
type place struct{ table, chain string }

func (p place) String() string { return "chain " + p.chain + " of table " + p.table }

// jump is a rule of ours in somebody else's chain.
type jump struct {
	place
	to, why string
}

// jumps lead into our chains, from the top of the kernel's: before what other
// programs translate, and before a firewall's drop. They are inserted where
// they are missing and stay where they are.
func (c Config) jumps() []jump {
	all := []jump{
		{place{filterTable, "INPUT"}, inputChain, "userspace-proxy: listeners"},
		{place{filterTable, "OUTPUT"}, sinksChain, "userspace-proxy: refused portals, from this node"},
		{place{natTable, "PREROUTING"}, portalsChain, "userspace-proxy: portals"},
		{place{natTable, "OUTPUT"}, outputChain, "userspace-proxy: portals, from this node"},
	}
	if c.Replies != 0 {
		all = append(all, jump{place{mangleTable, "PREROUTING"}, repliesChain, "userspace-proxy: replies to dials from clients' addresses"})
	}
	return all
}

// rule is the jump's rule as arguments of a command.
func (j jump) rule() []string { return []string{"-m", "comment", "--comment", j.why, "-j", j.to} }

// String is the jump's rule as a shell reads it.
func (j jump) String() string { return fmt.Sprintf("-m comment --comment %q -j %s", j.why, j.to) }

// words are what the families write differently.
type words struct{ loopback, unreachable string }

func wordsOf(f service.Family) words {
	if f == service.IPv6 {
		return words{loopback: "::1/128", unreachable: "icmp6-port-unreachable"}
	}
	return words{loopback: "127.0.0.0/8", unreachable: "icmp-port-unreachable"}
}

// chains are all our chains of one family, each with its rules.
func (c Config) chains(f service.Family, all []entry) map[place][]string {
	var portals, loopback, outside, ranged []*entry
	for i := range all {
		e := &all[i]
		switch {
		case e.family() != f:
			continue
		case e.Addr.Addr().IsLoopback():
			loopback = append(loopback, e)
			continue
		case e.scope == service.Outside:
			outside = append(outside, e)
			continue
		}
		portals = append(portals, e)
		if e.sources.Limited {
			ranged = append(ranged, e)
		}
	}
	chains := c.fixedChains(f, all)
	tree{portalsBelow, c.rule, chains}.grow(everyoneChain, "", portals)
	tree{loopbackBelow, c.rule, chains}.grow(loopbackChain, "", loopback)
	tree{outsideBelow, c.rule, chains}.grow(outsideChain, "", outside)
	tree{rangedBelow, c.sourceRule, chains}.grow(rangedChain, "", ranged)
	for _, e := range ranged {
		chains[place{natTable, e.sourcesChain()}] = c.sourceRules(e)
	}
	return chains
}

// fixedChains are those beside the trees.
//
// The translation is to one address of our own, not a redirect: that needs an
// address on the interface that the packet came by, which pods' interfaces may
// lack, and leads the node's own traffic to 127.0.0.1
// (docs/adr/0006-dnat-to-own-address.md).
//
// PREROUTING never looks at loopback portals. It sees a frame that a neighbour
// sent to 127.0.0.1 before the kernel finds it impossible, and a translated
// one would be possible.
//
// REPLIES marks what comes in for a connection that was made from a client's
// address, which it is addressed to. Policy routing delivers it to this node. A
// socket that listens on all addresses, a transparent proxy's, is not meant.
func (c Config) fixedChains(f service.Family, all []entry) map[place][]string {
	chains := map[place][]string{
		{natTable, portalsChain}: c.portalRules(f),
		{natTable, outputChain}: {
			// An endpoint may have the address of a portal, and the proxy's own
			// connection to it would come back.
			fmt.Sprintf("-m mark --mark %#x/%#x -j RETURN", c.Mark, c.Mark),
			"-d " + wordsOf(f).loopback + " -g " + loopbackChain,
			"-j " + rangedChain,
			"-g " + everyoneChain,
		},
		{filterTable, inputChain}: c.inputRules(f, all),
		{filterTable, guardChain}: guardRules(f),
		{filterTable, sinksChain}: c.sinkRules(f),
	}
	if c.Replies != 0 {
		chains[place{mangleTable, repliesChain}] = []string{c.replyRule()}
	}
	return chains
}

func (c Config) replyRule() string {
	return fmt.Sprintf("-m socket --transparent --nowildcard -j MARK --set-xmark %#x/%#x", c.Replies, c.Replies)
}

// portalRules ask first who may come, then, of what does not come from a pod on
// this node, where what comes from outside is led.
func (c Config) portalRules(f service.Family) []string {
	rules := []string{"-j " + rangedChain}
	if name, begins := strings.CutSuffix(c.LocalPods.Interface, "*"); name != "" {
		if begins {
			name += "+"
		}
		rules = append(rules, "-i "+name+" -g "+everyoneChain)
	}
	for _, r := range c.LocalPods.Of(f) {
		rules = append(rules, "-s "+r.String()+" -g "+everyoneChain)
	}
	return append(rules, "-j "+outsideChain, "-g "+everyoneChain)
}

// elsewhere is for chains that see every packet of the node: those that are
// not for the listening address leave at the first rule.
func (c Config) elsewhere(f service.Family) string {
	listen := c.Listen[f]
	return fmt.Sprintf("! -d %s -j RETURN", netip.PrefixFrom(listen, listen.BitLen()))
}

// inputRules sort what arrives at the listening address.
func (c Config) inputRules(f service.Family, all []entry) []string {
	rules := []string{c.elsewhere(f)}
	for _, proto := range []service.Protocol{service.TCP, service.UDP} {
		for _, ports := range c.guarded(f, proto, all) {
			rules = append(rules, match(proto, ports)+" -g "+guardChain)
		}
	}
	return append(rules, "-g "+sinksChain)
}

// sinkRules refuse and drop what was translated to a sink. That must happen
// before connection tracking confirms an entry for it, which would lead the
// sender here after the portal leads elsewhere: in INPUT for what comes from
// outside, but in OUTPUT for the node's own traffic. For that the kernel tells
// a UDP sender twice: the packet that OUTPUT stops is EPERM on send, the port
// unreachable that answers it is ECONNREFUSED on the next call.
func (c Config) sinkRules(f service.Family) []string {
	rules := []string{c.elsewhere(f)}
	refuse, drop := c.sinks()
	sink := func(proto service.Protocol, port uint16, target string) {
		rules = append(rules, match(proto, service.PortRange{First: port, Last: port})+" -m conntrack --ctstate DNAT -j "+target)
	}
	sink(service.TCP, refuse, "REJECT --reject-with tcp-reset")
	sink(service.UDP, refuse, "REJECT --reject-with "+wordsOf(f).unreachable)
	sink(service.TCP, drop, "DROP")
	sink(service.UDP, drop, "DROP")
	return rules
}

// guardRules keep listeners for traffic that came by a portal, and let that
// past a firewall that drops what it does not know. Without them whoever can
// route to the listening address reaches a Service past what the portal's
// rules say of it; and after a crash whoever takes a port in the range would
// be open to the network.
//
// What is not known to have been translated is refused, so that a packet
// without connection tracking does not slip through. Replies are left to the
// firewall: they are to connections that the node itself opened from this
// address.
func guardRules(f service.Family) []string {
	return []string{
		"-m conntrack --ctstate DNAT -j ACCEPT",
		"-m conntrack --ctdir REPLY -j RETURN",
		"-p tcp -j REJECT --reject-with tcp-reset",
		"-j REJECT --reject-with " + wordsOf(f).unreachable,
	}
}

func match(proto service.Protocol, ports service.PortRange) string {
	return fmt.Sprintf("-p %s -m %s --dport %s", proto.Lower(), proto.Lower(), written(ports))
}

// guarded are the ports of one protocol that the guard covers, as few ranges
// as possible.
func (c Config) guarded(f service.Family, proto service.Protocol, all []entry) []service.PortRange {
	if !c.SharedListen {
		return []service.PortRange{c.Ports}
	}
	var ports []uint16
	for _, e := range all {
		if e.family() == f && e.Protocol == proto && e.action == service.ToListener {
			ports = append(ports, e.listener.Port())
		}
	}
	slices.Sort(ports)
	var ranges []service.PortRange
	for _, port := range slices.Compact(ports) {
		if n := len(ranges); n > 0 && ranges[n-1].Last+1 == port {
			ranges[n-1].Last = port
		} else {
			ranges = append(ranges, service.PortRange{First: port, Last: port})
		}
	}
	return ranges
}

// ours says whether a chain's name is one that some version of this package
// may have made.
func ours(chain string) bool { return strings.HasPrefix(chain, ChainPrefix) }
