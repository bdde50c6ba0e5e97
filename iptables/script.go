package iptables

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// Render is what makes our chains of one family what the redirects ask for,
// whatever they were before: what the first Sync of a Runner gives to
// iptables-restore (or ip6tables-restore) --noflush. It is pure and sorted.
// For a family without a listening address it is empty.
//
// Lines that begin with # are for people. They name redirects that cannot be
// expressed, a configuration that is not valid, which comes to no rule, and the
// jumps, which a Runner inserts with iptables where they are missing.
func Render(c Config, f service.Family, redirects []service.Redirect) string {
	c = c.Defaults()
	var s strings.Builder
	if err := c.Validate(); err != nil {
		writeFaults(&s, err)
		return s.String()
	}
	if _, served := c.Listen[f]; !served {
		return ""
	}
	entries, err := c.entries(redirects)
	if err != nil {
		writeFaults(&s, err)
	}
	s.WriteString(replace(c.chains(f, entries), nil, c.jumps()))
	for _, j := range c.jumps() {
		fmt.Fprintf(&s, "# where it is missing: %s -t %s -I %s 1 %s\n", c.Kind.Command(f), j.table, j.chain, j)
	}
	return s.String()
}

// writeFaults writes an error as comment lines.
func writeFaults(s *strings.Builder, err error) {
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); line != "" {
			fmt.Fprintf(s, "# %s\n", line)
		}
	}
}

// replace writes all our chains anew. Found is what there is: what of it is
// ours and not wanted goes, and so do rules that lead to ours and are none of the
// jumps.
func replace(want map[place][]string, found map[string]listing, jumps []jump) string {
	var in input
	for at := range want {
		in.write(at, want[at])
	}
	for table, l := range found {
		for _, chain := range l.chains {
			at := place{table, chain}
			if _, wanted := want[at]; ours(chain) && !wanted && !strings.HasPrefix(chain, probeChain) {
				in.remove(at)
			}
		}
		for _, r := range l.strayJumps(table, jumps) {
			in.unlink(table, r)
		}
	}
	return in.String()
}

// change turns one state of our chains into another by writing those that
// differ. It is empty where none does.
func change(from, to map[place][]string) string {
	var in input
	for at, rules := range to {
		if before, was := from[at]; !was || !slices.Equal(before, rules) {
			in.write(at, rules)
		}
	}
	for at := range from {
		if _, stays := to[at]; !stays {
			in.remove(at)
		}
	}
	return in.String()
}

// commit ends a table's part of an input.
const commit = "COMMIT\n"

// input is for iptables-restore --noflush, which changes each table in one
// step. A line with a colon makes a chain, or empties it.
type input struct {
	written map[place][]string
	removed []place
	unlinks map[string][]string // by table, rules to delete: "PREROUTING -j X"
}

func (in *input) write(at place, rules []string) {
	if in.written == nil {
		in.written = make(map[place][]string)
	}
	in.written[at] = rules
}

func (in *input) remove(at place) { in.removed = append(in.removed, at) }

func (in *input) unlink(table string, r listedRule) {
	if in.unlinks == nil {
		in.unlinks = make(map[string][]string)
	}
	in.unlinks[table] = append(in.unlinks[table], r.chain+" "+r.spec)
}

// String is the input, of tables in which something is to be done.
func (in *input) String() string {
	var s strings.Builder
	for _, table := range tables() {
		written, removed := in.in(table)
		if len(written)+len(removed)+len(in.unlinks[table]) == 0 {
			continue
		}
		fmt.Fprintf(&s, "*%s\n", table)
		for _, at := range slices.SortedFunc(slices.Values(slices.Concat(written, removed)), place.compare) {
			fmt.Fprintf(&s, ":%s - [0:0]\n", at.chain)
		}
		for _, at := range written {
			for _, rule := range in.written[at] {
				fmt.Fprintf(&s, "-A %s %s\n", at.chain, rule)
			}
		}
		for _, rule := range in.unlinks[table] {
			fmt.Fprintf(&s, "-D %s\n", rule)
		}
		for _, at := range removed { // now that nothing leads there
			fmt.Fprintf(&s, "-X %s\n", at.chain)
		}
		s.WriteString(commit)
	}
	return s.String()
}

// in is what is written and removed in one table, in order.
func (in *input) in(table string) (written, removed []place) {
	elsewhere := func(at place) bool { return at.table != table }
	slices.SortFunc(in.removed, place.compare)
	return slices.DeleteFunc(places(in.written), elsewhere), slices.DeleteFunc(slices.Clone(in.removed), elsewhere)
}

// places are the places of chains, in order.
func places(chains map[place][]string) []place {
	return slices.SortedFunc(maps.Keys(chains), place.compare)
}

func (p place) compare(o place) int {
	return cmp.Or(cmp.Compare(p.table, o.table), cmp.Compare(p.chain, o.chain))
}

// remove removes all that is ours.
func remove(found map[string]listing) string {
	var in input
	for table, l := range found {
		for _, chain := range l.chains {
			if ours(chain) {
				in.remove(place{table, chain})
			}
			for _, r := range l.rules[chain] {
				if !ours(chain) && ours(r.target()) {
					in.unlink(table, r)
				}
			}
		}
	}
	return in.String()
}
