//go:build linux && !portable

package nftables

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// tracer walks packets through the rules that the kernel has, as nft lists
// them. It knows nothing of how they came about: it evaluates each expression
// of each rule, and fails the test at one that it does not know.
type tracer struct {
	t      testing.TB
	chains []tracedChain
	maps   map[string]map[string]any // "ip table name", then the left side as text: the right side
	local  []netip.Addr              // of the node
}

type tracedChain struct {
	table, name, kind, hook string // the table with its family: "ip userspace-proxy"
	priority                float64
	rules                   [][]map[string]any // the expressions of each
}

// walk is one packet on its way.
type walk struct {
	nettest.Packet
	dst  netip.AddrPort // now
	src  netip.Addr
	dnat bool
	iif  string
	name string // of the interface
}

// newTracer reads the rules of the bed's node.
func newTracer(t testing.TB, bed *nettest.Bed, listen map[service.Family]netip.Addr) *tracer {
	tr := &tracer{t: t, maps: make(map[string]map[string]any)}
	for f, a := range listen {
		tr.local = append(append(tr.local, a), bed.Node.Addrs(f)...)
	}
	for _, o := range list(t, bed.Node) {
		for kind, v := range o {
			tr.add(kind, v.(map[string]any))
		}
	}
	return tr
}

func (tr *tracer) add(kind string, o map[string]any) {
	word := func(k string) string { s, _ := o[k].(string); return s }
	table := word("family") + " " + word("table")
	switch kind {
	case "table":
	case "chain":
		priority, _ := o["prio"].(float64)
		tr.chains = append(tr.chains, tracedChain{table, word("name"), word("type"), word("hook"), priority, nil})
	case "rule":
		var expr []map[string]any
		for _, e := range o["expr"].([]any) {
			expr = append(expr, e.(map[string]any))
		}
		c := tr.chain(table, word("chain"))
		c.rules = append(c.rules, expr)
	case "map", "set":
		elements, _ := o["elem"].([]any)
		m := make(map[string]any)
		for _, e := range elements {
			left, right := e, any(nil)
			if kind == "map" {
				left, right = e.([]any)[0], e.([]any)[1]
			}
			if l, ok := left.(map[string]any)["elem"]; ok {
				left = l.(map[string]any)["val"]
			}
			m[concat(left)] = right
		}
		tr.maps[table+" "+word("name")] = m
	default:
		require.FailNow(tr.t, "the tracer does not know this object", kind)
	}
}

// concat is a concatenation as text: "10.96.0.10 . tcp . 80".
func concat(v any) string {
	list := []any{v}
	if m, ok := v.(map[string]any); ok && m["concat"] != nil {
		list = m["concat"].([]any)
	}
	var parts []string
	for _, p := range list {
		if m, ok := p.(map[string]any); ok { // a range
			prefix := m["prefix"].(map[string]any)
			p = fmt.Sprint(prefix["addr"], "/", prefix["len"])
		}
		parts = append(parts, fmt.Sprint(p))
	}
	return strings.Join(parts, " . ")
}

// has says whether a set has a packet's key, whose last part may be in a range.
func has(set map[string]any, key string) bool {
	if _, in := set[key]; in {
		return true
	}
	split := func(s string) (before, last string) {
		i := strings.LastIndex(" . "+s, " . ")
		return s[:max(0, i-3)], s[i:]
	}
	before, last := split(key)
	addr, err := netip.ParseAddr(last)
	for k := range set {
		start, end := split(k)
		if p, bad := netip.ParsePrefix(end); err == nil && bad == nil && start == before && p.Contains(addr) {
			return true
		}
	}
	return false
}

func (tr *tracer) chain(table, name string) *tracedChain {
	i := slices.IndexFunc(tr.chains, func(c tracedChain) bool { return c.table == table && c.name == name })
	require.GreaterOrEqual(tr.t, i, 0, "chain %s %s", table, name)
	return &tr.chains[i]
}

// trace says what becomes of a packet: which hooks it passes is the kernel's
// doing and told here, everything else is in the rules.
func (tr *tracer) trace(p nettest.Packet) string {
	w := &walk{Packet: p, dst: p.Dst, iif: "eth", name: map[string]string{"pod": nettest.NodeToPod, "client": nettest.NodeToClient}[p.From]}
	w.src = nettest.SourceOf(p.From, service.FamilyOf(p.Dst.Addr()))
	hooks := []string{"prerouting", "input"}
	if p.From == "node" {
		hooks, w.iif = []string{"output", "prerouting", "input"}, "lo"
	}
	for _, hook := range hooks {
		isLocal := w.dst.Addr().IsLoopback() || slices.Contains(tr.local, w.dst.Addr())
		leaves := hook == "input" || p.From == "node" && hook == "prerouting"
		if leaves && !isLocal {
			break // to another host
		}
		if verdict := tr.hook(w, hook); verdict != "accept" {
			return verdict
		}
	}
	if w.dnat {
		return "listener " + w.dst.String()
	}
	return nettest.Passes
}

func (tr *tracer) hook(w *walk, hook string) string {
	family := wordsOf(service.FamilyOf(w.dst.Addr())).nft
	var chains []tracedChain
	for _, c := range tr.chains {
		// A connection is translated in the first nat chains that it passes.
		again := c.kind == "nat" && w.From == "node" && hook != "output"
		if c.hook == hook && strings.HasPrefix(c.table, family+" ") && !again {
			chains = append(chains, c)
		}
	}
	slices.SortStableFunc(chains, func(a, b tracedChain) int { return int(a.priority - b.priority) })
	for _, c := range chains {
		if verdict := tr.walk(w, &c); verdict != "return" && verdict != "accept" {
			return verdict
		}
	}
	return "accept"
}

func (tr *tracer) walk(w *walk, c *tracedChain) string {
	for _, rule := range c.rules {
		if verdict := tr.rule(w, c.table, rule); verdict != "" {
			return verdict
		}
	}
	return "return" // and the policy is accept
}

// rule is a rule's verdict; empty where it has none or does not match.
func (tr *tracer) rule(w *walk, table string, rule []map[string]any) string {
	for _, e := range rule {
		for kind, v := range e {
			verdict, matches := tr.expression(w, table, kind, v)
			if verdict != "" || !matches {
				return verdict
			}
		}
	}
	return ""
}

func (tr *tracer) expression(w *walk, table, kind string, v any) (verdict string, matches bool) {
	arg, _ := v.(map[string]any)
	switch kind {
	case "counter":
		return "", true
	case "match":
		return "", tr.matches(w, table, arg)
	case "reject":
		if arg["type"] == "tcp reset" && w.Proto != service.TCP {
			return "", false // nft leaves the match that this implies out of its listings
		}
		return nettest.Refused, true
	case "drop":
		return nettest.Dropped, true
	case "return", "accept":
		return kind, true
	case "goto":
		return tr.walk(w, tr.chain(table, arg["target"].(string))), true
	case "jump":
		verdict := tr.walk(w, tr.chain(table, arg["target"].(string)))
		if verdict == "return" {
			verdict = "" // and on with the next rule
		}
		return verdict, true
	case "vmap":
		if found, ok := tr.lookup(w, table, arg); ok {
			for kind, v := range found.(map[string]any) {
				return tr.expression(w, table, kind, v)
			}
		}
		return "", false
	case "dnat":
		to, ok := tr.lookup(w, table, arg["addr"].(map[string]any)["map"].(map[string]any))
		if !ok {
			return "", false
		}
		addr, port, _ := strings.Cut(concat(to), " . ")
		w.dst, w.dnat = netip.MustParseAddrPort(net.JoinHostPort(addr, port)), true
		return "accept", true
	}
	require.FailNow(tr.t, "the tracer does not know this expression", kind)
	return "", false
}

// lookup looks a packet up in a map.
func (tr *tracer) lookup(w *walk, table string, arg map[string]any) (any, bool) {
	m, known := tr.maps[table+" "+strings.TrimPrefix(arg["data"].(string), "@")]
	require.True(tr.t, known, "map %v", arg["data"])
	found, ok := m[tr.key(w, arg["key"])]
	return found, ok
}

// key is a concatenation of what a packet has.
func (tr *tracer) key(w *walk, key any) string {
	var parts []string
	list := []any{key}
	if concat, ok := key.(map[string]any)["concat"].([]any); ok {
		list = concat
	}
	for _, p := range list {
		parts = append(parts, fmt.Sprint(tr.value(w, p)))
	}
	return strings.Join(parts, " . ")
}

func (tr *tracer) matches(w *walk, table string, arg map[string]any) bool {
	left, right := arg["left"].(map[string]any), arg["right"]
	if set, ok := right.(string); ok && strings.HasPrefix(set, "@") {
		return has(tr.maps[table+" "+set[1:]], tr.key(w, left)) != (arg["op"] == "!=")
	}
	if and, ok := left["&"].([]any); ok {
		return float64(uint32(tr.value(w, and[0]).(float64))&uint32(and[1].(float64))) == right
	}
	value := tr.value(w, left)
	if name, ok := right.(string); ok && strings.HasSuffix(name, "*") {
		return strings.HasPrefix(fmt.Sprint(value), strings.TrimSuffix(name, "*")) != (arg["op"] == "!=")
	}
	if arg["op"] == "!=" {
		return value != right
	}
	if r, ok := right.(map[string]any); ok {
		if set, ok := r["set"].([]any); ok {
			return slices.Contains(set, value)
		}
		ends := r["range"].([]any)
		return ends[0].(float64) <= value.(float64) && value.(float64) <= ends[1].(float64)
	}
	return value == right
}

// value is what a packet has in one respect. Strings and numbers are as JSON
// has them.
func (tr *tracer) value(w *walk, of any) any {
	for kind, v := range of.(map[string]any) {
		arg := v.(map[string]any)
		what := kind + " " + fmt.Sprint(arg["key"])
		if kind == "payload" {
			what = fmt.Sprint(arg["protocol"], " ", arg["field"])
		}
		switch what {
		case "meta mark":
			return float64(w.Mark)
		case "meta iif":
			return w.iif
		case "meta iifname":
			return w.name
		case "ip saddr", "ip6 saddr":
			return w.src.String()
		case "meta l4proto":
			return w.Proto.Lower()
		case "ip daddr", "ip6 daddr":
			return w.dst.Addr().String()
		case "th dport":
			return float64(w.dst.Port())
		case "ct state":
			return "new"
		case "ct direction":
			return "original"
		case "ct status":
			return map[bool]string{true: "dnat"}[w.dnat]
		}
		require.FailNow(tr.t, "the tracer does not know what this is", what)
	}
	return nil
}
