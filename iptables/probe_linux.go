//go:build linux && !portable

package iptables

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// Probe tries whether our rules work on this machine, in each family that the
// configuration listens in: it really makes chains, under names of their own
// and with a rule of each form, and removes them. No packet passes them. The
// error says why no family works; a report with one family and the reason for
// the other is not an error.
//
// With the kind System it takes the first kind that works: that of the kubelet
// where one has left its mark, iptables, iptables-nft, iptables-legacy. The
// report tells which, for the Config of a Runner.
//
// Where another program holds the xtables lock for longer than we wait for it
// nothing can be tried, and the kind is taken to work: Report.Untried.
func Probe(ctx context.Context, c Config) (Report, error) {
	c = c.Defaults()
	if err := c.Validate(); err != nil {
		return Report{}, fmt.Errorf("iptables configuration: %w", err)
	}
	kinds := []Kind{c.Kind}
	if c.Kind == System {
		kinds = candidates(ctx, c)
	}
	var best Report
	var reasons []error
	for _, k := range kinds {
		report, err := probe(ctx, c, k)
		if err != nil {
			reasons = append(reasons, err)
			continue
		}
		if len(report.Families) > len(best.Families) {
			best = report
		}
		if len(best.Missing) == 0 {
			break
		}
	}
	if len(best.Families) > 0 {
		return best, nil
	}
	if !slices.ContainsFunc(reasons, func(err error) bool { return !errors.Is(err, ErrNoRight) }) {
		reasons = []error{ErrNoRight} // once, not for each kind and family
	}
	return best, fmt.Errorf("probing iptables: %w", errors.Join(reasons...))
}

// candidates are the kinds, in the order in which they are tried.
func candidates(ctx context.Context, c Config) []Kind {
	var marked []Kind
	for _, k := range []Kind{NFT, Legacy} {
		if cmds, err := find(ctx, c, k, service.IPv4); err == nil && cmds.markedByKubelet() {
			marked = append(marked, k)
		}
	}
	all := []Kind{System, NFT, Legacy}
	if len(marked) != 1 {
		return all
	}
	return append(marked, slices.DeleteFunc(all, func(k Kind) bool { return k == marked[0] })...)
}

// markedByKubelet says whether a kubelet has made the chains by which it tells
// others what kind of iptables the node uses (KEP-3178).
func (c *commands) markedByKubelet() bool {
	if exists, err := c.exists(mangleTable); err != nil || !exists {
		return false
	}
	chains, err := c.ListChains(mangleTable)
	return err == nil && (slices.Contains(chains, "KUBE-IPTABLES-HINT") || slices.Contains(chains, "KUBE-KUBELET-CANARY"))
}

// probe tries one kind.
func probe(ctx context.Context, c Config, k Kind) (Report, error) {
	report := Report{Kind: k, Missing: make(map[service.Family]error)}
	var reasons []error
	for _, f := range service.Families() {
		if _, served := c.Listen[f]; !served {
			continue
		}
		cmds, err := find(ctx, c, k, f)
		if err == nil {
			if report.Version == "" {
				report.Version = cmds.version
			}
			err = cmds.recent()
		}
		if err == nil && report.Untried == nil {
			err = cmds.try(ctx, c)
		}
		if errors.Is(err, ErrLocked) { // by a busy firewall, say: no reason to take another kind, or to give up
			report.Untried, err = err, nil
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", f, err)
			reasons = append(reasons, err)
			report.Missing[f] = err
			continue
		}
		report.Families = append(report.Families, f)
	}
	if len(report.Families) == 0 {
		return report, errors.Join(reasons...)
	}
	return report, nil
}

// part is one thing that the kernel must have, and rules that need it.
type part struct {
	name  string // for people, with the kernel module's name
	rules map[place][]string
}

// parts are all that our rules need. Two processes may probe at once.
func (c Config) parts(f service.Family) []part {
	chain := fmt.Sprint(probeChain, os.Getpid())
	nat, filter := place{natTable, chain}, place{filterTable, chain}
	modules := map[string]string{"nat": "iptable_nat", "filter": "iptable_filter", "mangle": "iptable_mangle", "REJECT": "ipt_REJECT"}
	if f == service.IPv6 {
		modules = map[string]string{"nat": "ip6table_nat", "filter": "ip6table_filter", "mangle": "ip6table_mangle", "REJECT": "ip6t_REJECT"}
	}
	one := func(at place, rules ...string) map[place][]string { return map[place][]string{at: rules} }
	to := netip.AddrPortFrom(c.Listen[f], 1)
	all := []part{
		{"the table filter (" + modules["filter"] + ")", one(filter)},
		{"the table nat (" + modules["nat"] + ")", one(nat)},
		{"matches of TCP and UDP ports (xt_tcpudp)", one(filter, "-p tcp -m tcp --dport 1:2 -j RETURN", "-p udp -m udp --dport 1 -j RETURN")},
		{"the match comment (xt_comment)", one(filter, `-m comment --comment "userspace-proxy" -j RETURN`)},
		{"the match mark (xt_mark)", one(nat, "-m mark --mark 0x1/0x1 -j RETURN")},
		{"the match conntrack (xt_conntrack)", one(filter, "-m conntrack --ctstate DNAT -j RETURN", "-m conntrack --ctdir REPLY -j RETURN")},
		{"the target REJECT (" + modules["REJECT"] + ")", one(filter,
			"-p tcp -j REJECT --reject-with tcp-reset", "-j REJECT --reject-with "+wordsOf(f).unreachable)},
		{"the target DNAT (xt_nat)", one(nat, "-p tcp -m tcp --dport 1 -j DNAT --to-destination "+to.String())},
	}
	if c.Replies != 0 {
		mangle := place{mangleTable, chain}
		all = append(all,
			part{"the table mangle (" + modules["mangle"] + ")", one(mangle)},
			part{"for --transparent the match socket and the target MARK (xt_socket, xt_mark)", one(mangle, c.replyRule())})
	}
	return all
}

// try makes rules of each form and removes them. Where that fails it tries
// each part, to say which are missing.
func (c *commands) try(ctx context.Context, config Config) error {
	all := make(map[place][]string)
	each := config.parts(c.family)
	for _, p := range each {
		for at, rules := range p.rules {
			all[at] = append(all[at], rules...)
		}
	}
	err := c.tryRules(ctx, all)
	if err == nil || errors.Is(err, ErrNoRight) || errors.Is(err, ErrLocked) || ctx.Err() != nil {
		return err
	}
	var missing []string
	for _, p := range each {
		if c.tryRules(ctx, p.rules) != nil {
			missing = append(missing, p.name)
		}
	}
	if len(missing) == 0 {
		return err
	}
	return fmt.Errorf("%s cannot use %s: load or build these modules (%w)", c.name, strings.Join(missing, ", "), err)
}

func (c *commands) tryRules(ctx context.Context, rules map[place][]string) error {
	err := c.restore(ctx, change(nil, rules))
	// Of two tables the first may have been changed.
	var in input
	for at := range rules {
		l, listErr := c.save(ctx, at.table)
		if listErr == nil && slices.Contains(l.chains, at.chain) {
			in.remove(at)
		}
		if err == nil {
			err = listErr
		}
	}
	if s := in.String(); s != "" {
		if removeErr := c.restore(ctx, s); err == nil && removeErr != nil {
			err = fmt.Errorf("removing the probe's chains: %w", removeErr)
		}
	}
	return err
}
