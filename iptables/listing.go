package iptables

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
)

// listing is one table as iptables-save prints it.
type listing struct {
	chains []string
	rules  map[string][]listedRule // by chain
}

// listedRule is one rule. Versions print the same rule differently, so nothing
// but its target and, in our own chains, what it matches is read.
type listedRule struct {
	chain   string
	packets uint64 // where counters were asked for
	spec    string // what comes after the chain's name
}

// parse reads what iptables-save printed of one table.
func parse(text string) (listing, error) {
	l := listing{rules: make(map[string][]listedRule)}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, ":"):
			name, _, _ := strings.Cut(line[1:], " ")
			l.chains = append(l.chains, name)
		case strings.HasPrefix(line, "-A "), strings.HasPrefix(line, "["):
			r, err := parseRule(line)
			if err != nil {
				return listing{}, err
			}
			l.rules[r.chain] = append(l.rules[r.chain], r)
		}
	}
	return l, nil
}

// parseRule reads "[12:720] -A CHAIN -d 10.96.0.10/32 -j DNAT …"; the counters
// may be missing.
func parseRule(line string) (listedRule, error) {
	var r listedRule
	rest := line
	if strings.HasPrefix(line, "[") {
		counters, after, _ := strings.Cut(line[1:], "] ")
		packets, _, _ := strings.Cut(counters, ":")
		n, err := strconv.ParseUint(packets, 10, 64)
		if err != nil {
			return r, fmt.Errorf("reading the counters of the rule %q: %w", line, err)
		}
		r.packets, rest = n, after
	}
	rest, added := strings.CutPrefix(rest, "-A ")
	if r.chain, r.spec, _ = strings.Cut(rest, " "); !added || r.chain == "" {
		return r, fmt.Errorf("the rule %q names no chain", line)
	}
	return r, nil
}

// words are the rule's words; what is quoted is one.
func (r listedRule) words() []string {
	var words []string
	var word strings.Builder
	quoted, begun := false, false
	for i := 0; i < len(r.spec); i++ {
		switch b := r.spec[i]; {
		case b == '\\' && quoted && i+1 < len(r.spec):
			i++
			word.WriteByte(r.spec[i])
		case b == '"':
			quoted, begun = !quoted, true
		case b == ' ' && !quoted:
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteByte(b)
			begun = true
		}
	}
	if begun {
		words = append(words, word.String())
	}
	return words
}

// option is the word after an option; empty where the rule lacks it.
func (r listedRule) option(names ...string) string {
	words := r.words()
	for i := 0; i+1 < len(words); i++ {
		for _, name := range names {
			if words[i] == name {
				return words[i+1]
			}
		}
		if words[i] == "--comment" {
			i++ // anything may be in it
		}
	}
	return ""
}

// target is the chain that the rule leads to, or the verdict.
func (r listedRule) target() string { return r.option("-j", "-g") }

// has says whether the jump is there.
func (l listing) has(j jump) bool {
	for _, r := range l.rules[j.chain] {
		if r.target() == j.to {
			return true
		}
	}
	return false
}

// strayJumps are rules in others' chains that lead to ours and are not one of
// the jumps, or are there twice: from another version, or from two processes
// that inserted one at the same moment.
func (l listing) strayJumps(table string, jumps []jump) []listedRule {
	wanted := make(map[jump]bool)
	for _, j := range jumps {
		wanted[jump{place: j.place, to: j.to}] = j.table == table
	}
	var stray []listedRule
	for _, chain := range l.chains {
		for _, r := range l.rules[chain] {
			if ours(chain) || !ours(r.target()) {
				continue
			}
			j := jump{place: place{table, chain}, to: r.target()}
			if !wanted[j] {
				stray = append(stray, r)
			}
			wanted[j] = false
		}
	}
	return stray
}

// fingerprint is a hash of rules, counters aside.
func fingerprint(rules []listedRule) uint64 {
	h := fnv.New64a()
	for _, r := range rules {
		_, _ = h.Write([]byte(r.spec + "\n")) // a hash takes everything
	}
	return h.Sum64()
}
