package iptables

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// tracer walks packets through tables as iptables-save prints them. It knows
// nothing of how the rules came about: it evaluates each word of each rule, and
// fails the test at one that it does not know.
type tracer struct {
	t      testing.TB
	rules  map[service.Family]map[place][][]string // the words of each
	local  []netip.Addr                            // of the node
	passed int                                     // rules that the last packet was compared with
}

// add adds a rule.
func (tr *tracer) add(f service.Family, table string, r listedRule) {
	if tr.rules[f] == nil {
		tr.rules[f] = make(map[place][][]string)
	}
	at := place{table, r.chain}
	tr.rules[f][at] = append(tr.rules[f][at], r.words())
}

// walk is one packet on its way.
type walk struct {
	nettest.Packet
	dst  netip.AddrPort // now
	dnat bool
}

// rendered is a tracer over what Render prints, with the jumps.
func rendered(t testing.TB, c Config, redirects []service.Redirect) *tracer {
	t.Helper()
	tr := &tracer{t: t, rules: make(map[service.Family]map[place][][]string)}
	for f, addr := range c.Listen {
		tr.local = append(tr.local, addr)
		for part := range strings.SplitSeq(Render(c, f, redirects), "*") {
			name, rest, _ := strings.Cut(part, "\n")
			if !slices.Contains(tables(), name) {
				continue
			}
			l, err := parse(rest)
			require.NoError(t, err)
			for _, rules := range l.rules {
				for _, r := range rules {
					tr.add(f, name, r)
				}
			}
		}
		for _, j := range c.jumps() {
			r, err := parseRule("-A " + j.chain + " " + j.String())
			require.NoError(t, err)
			tr.add(f, j.table, r)
		}
	}
	return tr
}

// trace says what becomes of a packet: which chains of the kernel it passes is
// told here, everything else is in the rules. A connection is translated by
// the first table nat that it passes, the node's own in OUTPUT.
func (tr *tracer) trace(p nettest.Packet) string {
	tr.passed = 0
	w := &walk{Packet: p, dst: p.Dst}
	hooks := []place{{natTable, "PREROUTING"}, {filterTable, "INPUT"}}
	if p.From == "node" {
		hooks = []place{{natTable, "OUTPUT"}, {filterTable, "OUTPUT"}, {filterTable, "INPUT"}}
	}
	verdict := ""
	for _, at := range hooks {
		here := w.dst.Addr().IsLoopback() || slices.Contains(tr.local, w.dst.Addr())
		if verdict == "" && (here || at.chain != "INPUT") {
			verdict = tr.walk(w, at)
		}
	}
	switch {
	case verdict == "REJECT":
		return nettest.Refused
	case verdict == "DROP":
		return nettest.Dropped
	case w.dnat:
		return "listener " + w.dst.String()
	}
	return nettest.Passes
}

// walk is a chain's verdict; empty where it has none.
func (tr *tracer) walk(w *walk, at place) string {
	for _, words := range tr.rules[service.FamilyOf(w.dst.Addr())][at] {
		tr.passed++
		target, jumps, matches := tr.rule(w, words)
		if !matches {
			continue
		}
		switch target {
		case "REJECT", "DROP":
			return target
		case "ACCEPT", "DNAT":
			return "" // of this table
		case "RETURN":
			return ""
		}
		verdict := tr.walk(w, place{at.table, target})
		if verdict != "" || !jumps {
			return verdict
		}
	}
	return ""
}

// rule says where a rule leads to, whether it comes back from there, and
// whether it matches.
func (tr *tracer) rule(w *walk, words []string) (target string, jumps, matches bool) {
	matches = true
	negated := false
	for len(words) > 0 {
		option := words[0]
		if words = words[1:]; option == "!" {
			negated = true
			continue
		}
		if len(words) == 0 {
			require.FailNow(tr.t, "a rule ends early", option)
		}
		arg := words[0]
		words = words[1:]
		switch option {
		case "-m", "--comment", "--reject-with": // say nothing of the packet; each match has an option
		case "-j", "-g":
			target, jumps = arg, option == "-j"
		case "--to-destination":
			if matches {
				w.dst, w.dnat = netip.MustParseAddrPort(arg), true
			}
		default:
			matches = matches && tr.matches(w, option, arg) != negated
		}
		negated = false
	}
	return target, jumps, matches
}

func (tr *tracer) matches(w *walk, option, arg string) bool {
	switch option {
	case "-d":
		return inMask(tr.t, w.dst.Addr(), arg)
	case "-s":
		return inMask(tr.t, nettest.SourceOf(w.From, service.FamilyOf(w.Dst.Addr())), arg)
	case "-i":
		name := map[string]string{"pod": nettest.NodeToPod, "client": nettest.NodeToClient}[w.From]
		begin, begins := strings.CutSuffix(arg, "+")
		return name == arg || begins && strings.HasPrefix(name, begin)
	case "-p":
		return arg == w.Proto.Lower()
	case "--dport":
		first, last, isRange := strings.Cut(arg, ":")
		if !isRange {
			last = first
		}
		port := uint64(w.dst.Port())
		return number(tr.t, first) <= port && port <= number(tr.t, last)
	case "--mark":
		value, mask, _ := strings.Cut(arg, "/")
		return uint64(w.Mark)&number(tr.t, mask) == number(tr.t, value)
	case "--ctstate":
		require.Equal(tr.t, "DNAT", arg)
		return w.dnat
	case "--ctdir":
		require.Equal(tr.t, "REPLY", arg)
		return false // it is a first packet
	}
	require.FailNow(tr.t, "the tracer does not know this option", option)
	return false
}

func number(t testing.TB, s string) uint64 {
	n, err := strconv.ParseUint(s, 0, 32)
	require.NoError(t, err)
	return n
}

// inMask says whether an address is in "10.0.0.0/8" or "0.0.0.7/0.0.0.7".
func inMask(t testing.TB, addr netip.Addr, in string) bool {
	value, mask, _ := strings.Cut(in, "/")
	if bits, err := strconv.Atoi(mask); err == nil {
		return netip.PrefixFrom(netip.MustParseAddr(value), bits).Contains(addr)
	}
	a, v, m := addr.AsSlice(), netip.MustParseAddr(value).AsSlice(), netip.MustParseAddr(mask).AsSlice()
	require.Len(t, m, len(a))
	for i := range a {
		if a[i]&m[i] != v[i] {
			return false
		}
	}
	return true
}
