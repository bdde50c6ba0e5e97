//go:build linux && !portable

package nftables

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// KeptOut finds out whether a firewall of the node keeps out what portals lead
// here, which would otherwise look like Services that do not answer. It is not
// guessed from anybody's rules: it counts what came and what got through since
// it was last called. Without traffic from outside the last answer stands.
//
// What passes from the node itself says nothing and does not count.
func (r *Runner) KeptOut(ctx context.Context) ([]service.Problem, error) {
	ctx, cancel := context.WithTimeout(ctx, r.config.Timeout)
	defer cancel()
	r.mu.Lock()
	known := r.applied != nil
	r.mu.Unlock()
	if !known {
		return nil, nil // there are no counters yet, or they may be damaged
	}
	var problems []service.Problem
	for _, f := range service.Families() {
		if _, served := r.config.Listen[f]; !served {
			continue
		}
		lost, err := r.lost(ctx, f)
		if err != nil {
			return nil, fmt.Errorf("finding out whether a firewall drops: %w", err)
		}
		if lost < enough {
			continue
		}
		commands, err := r.whatLetsThrough(ctx, f)
		if err != nil {
			return nil, fmt.Errorf("finding out what a firewall drops by: %w", err)
		}
		problems = append(problems, keptOut(f, lost, commands))
	}
	return problems, nil
}

// lost is how many connections and flows have not arrived since one has.
func (r *Runner) lost(ctx context.Context, f service.Family) (uint64, error) {
	var counted [3]uint64
	for i, chain := range []string{inputChain, arrivedChain, inputChain} { // one list of both would have all portals in it
		list, err := nft(ctx, "-j", "list", "chain", wordsOf(f).nft, r.config.Table, chain)
		if err != nil {
			return 0, err
		}
		entered, arrived, err := readPassage(list)
		if err != nil {
			return 0, err
		}
		counted[i] = entered + arrived // one of them is 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.passed[f]
	p.see(counted[0], counted[1], counted[2])
	r.passed[f] = p
	return p.lost, nil
}

// whatLetsThrough are the commands that have those chains accept our traffic
// that may be dropping it.
func (r *Runner) whatLetsThrough(ctx context.Context, f service.Family) ([]string, error) {
	list, err := nft(ctx, "-j", "list", "chains")
	if err != nil {
		return nil, err
	}
	chains, err := inputChains(list, f, r.config.Table)
	if err != nil {
		return nil, err
	}
	var commands []string
	for _, c := range chains {
		commands = append(commands, c.letThrough(f))
	}
	if legacyFilter(f) || len(commands) == 0 {
		commands = append(commands, acceptIn(f, "-legacy"))
	}
	return commands, nil
}

// legacyFilter says whether there are filter rules of the older kind of
// iptables, of which nft does not know.
func legacyFilter(f service.Family) bool {
	name := "/proc/net/ip_tables_names"
	if f == service.IPv6 {
		name = "/proc/net/ip6_tables_names"
	}
	tables, err := os.ReadFile(name)
	return err == nil && slices.Contains(strings.Fields(string(tables)), "filter")
}
