package nftables

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// printed is a table as `nft --stateless --numeric-protocol list table` prints it.
type printed struct {
	sets     map[string]bool   // sets and maps
	rules    map[string]int    // how many a chain has
	elements map[string]string // right sides by set and left side: "portals 10.96.0.10 . 6 . 80"
	frame    string            // all but the elements
}

// readPrinted reads a table. (JSON would be easier to read, but not every nft
// can write it.)
func readPrinted(text string) printed {
	p := printed{sets: make(map[string]bool), rules: make(map[string]int), elements: make(map[string]string)}
	var frame strings.Builder
	var set, chain string
	inside := false // the list of elements
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "# count ") // of elements, which newer versions tell
		line = strings.TrimSpace(line)
		list, begins := strings.CutPrefix(line, "elements = {")
		if inside = inside || begins; inside {
			list, ends := strings.CutSuffix(list, "}")
			p.addElements(set, list)
			inside = !ends
			continue
		}
		frame.WriteString(line + "\n")
		words := strings.Fields(line)
		switch {
		case len(words) == 3 && words[2] == "{" && (words[0] == "map" || words[0] == "set"):
			set = words[1]
			p.sets[set] = true
		case len(words) == 3 && words[2] == "{" && words[0] == "chain":
			chain = words[1]
			p.rules[chain] = 0
		case line == "}":
			chain = ""
		case chain != "" && words != nil && words[0] != "type":
			p.rules[chain]++
		}
	}
	p.frame = frame.String()
	return p
}

// addElements reads a line of a list: `10.96.0.10 . 6 . 80 counter comment "x" : 169.254.77.1 . 10000,`.
// Ours have no comma in a comment.
func (p printed) addElements(set, list string) {
	for one := range strings.SplitSeq(list, ",") {
		one = strings.TrimSpace(one)
		if one == "" {
			continue
		}
		left, value := one, ""
		if i := strings.LastIndex(one, " : "); i >= 0 {
			left, value = one[:i], one[i+len(" : "):]
		}
		left, _, _ = strings.Cut(left, " counter")
		left, _, _ = strings.Cut(left, " comment")
		p.elements[set+" "+plain(left)] = plain(value)
	}
}

// plain has addresses written in the one way that netip writes them.
func plain(joined string) string {
	words := strings.Split(joined, " . ")
	for _, i := range []int{0, len(words) - 1} {
		if addr, err := netip.ParseAddr(words[i]); err == nil {
			words[i] = addr.String()
		} else if p, err := netip.ParsePrefix(words[i]); err == nil {
			words[i] = p.String()
		}
	}
	return strings.Join(words, " . ")
}

// printedElements are elements as they are printed, by family.
func printedElements(elements map[key]element) map[service.Family]map[string]string {
	numbers := map[string]string{service.TCP.Lower(): "6", service.UDP.Lower(): "17"}
	all := make(map[service.Family]map[string]string)
	for _, e := range elements {
		f := e.family()
		if all[f] == nil {
			all[f] = make(map[string]string)
		}
		match := e.match()
		for i, word := range match {
			if number, ok := numbers[word]; ok {
				match[i] = number
			}
		}
		all[f][e.set+" "+strings.Join(match, " . ")] = strings.Join(e.value(), " . ")
	}
	return all
}

// differsFrom says in what a table differs from one that was written, as far
// as that shows whatever version of nft printed it; empty where it does not.
func (p printed) differsFrom(t table, elements map[string]string) string {
	sets, rules := make(map[string]bool), make(map[string]int)
	for _, s := range t.sets {
		sets[s.name] = true
	}
	if names(p.sets) != names(sets) {
		return fmt.Sprintf("there are the maps and sets %q instead of %q", names(p.sets), names(sets))
	}
	for _, c := range t.chains {
		rules[c.name] = 0
	}
	for _, r := range t.rules {
		rules[r.chain]++
	}
	if names(p.rules) != names(rules) {
		return fmt.Sprintf("there are the chains %q instead of %q", names(p.rules), names(rules))
	}
	for _, chain := range slices.Sorted(maps.Keys(rules)) {
		if got := p.rules[chain]; got != rules[chain] {
			return fmt.Sprintf("chain %s has %d rules instead of %d", chain, got, rules[chain])
		}
	}
	if maps.Equal(elements, p.elements) {
		return ""
	}
	for _, e := range slices.Sorted(maps.Keys(elements)) {
		if got, there := p.elements[e]; !there || got != elements[e] {
			return fmt.Sprintf("the element %s is gone or another", e)
		}
	}
	return fmt.Sprintf("there are %d elements instead of %d", len(p.elements), len(elements))
}

// names are the keys of a map, in order.
func names[V any](m map[string]V) string {
	return strings.Join(slices.Sorted(maps.Keys(m)), " ")
}
