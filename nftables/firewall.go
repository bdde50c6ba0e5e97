package nftables

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// passage counts what portals have led to listeners from outside: what came to
// our first chain at the input hook and what came to our last. Between the two
// stands every firewall of the node, of nftables or iptables, and an accept of
// ours does not override its drop.
type passage struct {
	entered, arrived uint64
	lost             uint64 // that entered since the last one that arrived
}

// enough is how many connections and flows must be lost, and not one arrive,
// to say that they are kept out. It is as many as a client of TCP tries in
// three seconds.
const enough = 3

// see takes in the counters: how many had arrived, and how many had entered before
// and after those were counted. What entered in between may be among those that
// arrived, so it is taken to be, and is not missed at the next look. The counters
// begin anew where the rules do.
func (p *passage) see(before, arrived, after uint64) {
	if before < p.entered || arrived < p.arrived {
		p.entered, p.arrived = 0, 0
	}
	if arrived > p.arrived {
		p.lost, p.entered = 0, after
	} else {
		p.lost, p.entered = p.lost+before-p.entered, before
	}
	p.arrived = arrived
}

// readPassage adds up the counters of our two chains in a listing of them.
func readPassage(list []byte) (entered, arrived uint64, err error) {
	var l listing
	if err := json.Unmarshal(list, &l); err != nil {
		return 0, 0, fmt.Errorf("reading what nft listed: %w", err)
	}
	for _, o := range l.Objects {
		if o.Rule == nil {
			continue
		}
		for _, e := range o.Rule.Expr {
			switch {
			case e.Counter == nil:
			case o.Rule.Chain == inputChain:
				entered += e.Counter.Packets
			case o.Rule.Chain == arrivedChain:
				arrived += e.Counter.Packets
			}
		}
	}
	return entered, arrived, nil
}

// inputChains are the chains at the input hook that may keep a family's packets
// from us, in a listing of all chains: those whose policy is to drop, or all
// where none says so.
func inputChains(list []byte, f service.Family, ours string) ([]listedChain, error) {
	var l listing
	if err := json.Unmarshal(list, &l); err != nil {
		return nil, fmt.Errorf("reading what nft listed: %w", err)
	}
	var all, dropping []listedChain
	for _, o := range l.Objects {
		c := o.Chain
		if c == nil || c.Hook != "input" || c.Table == ours || c.Family != wordsOf(f).nft && c.Family != "inet" {
			continue
		}
		all = append(all, *c)
		if c.Policy == "drop" {
			dropping = append(dropping, *c)
		}
	}
	if len(dropping) > 0 {
		return dropping, nil
	}
	return all, nil
}

// letThrough is the command that has a chain accept what portals led here.
func (c listedChain) letThrough(f service.Family) string {
	if c.Table == "filter" && c.Name == "INPUT" && c.Family != "inet" {
		return acceptIn(f, "")
	}
	return fmt.Sprintf("nft insert rule %s %s %s ct status dnat accept", c.Family, c.Table, c.Name)
}

// acceptIn is that command for the INPUT chain of a kind of iptables.
func acceptIn(f service.Family, kind string) string {
	command := "iptables"
	if f == service.IPv6 {
		command = "ip6tables"
	}
	return command + kind + " -I INPUT -m conntrack --ctstate DNAT -j ACCEPT"
}

// keptOut is the problem of a family whose traffic is kept out.
func keptOut(f service.Family, lost uint64, commands []string) service.Problem {
	return service.Problem{
		Object: "this node", Reason: "FirewallDrops",
		Detail: fmt.Sprintf("a firewall keeps out what comes to Services over %s: of the last %d connections and flows that were led to the proxy none arrived", f, lost),
		Advice: "let it through: " + "`" + strings.Join(slices.Compact(commands), "` and `") + "`",
	}
}
