package service

import (
	"cmp"
	"net/netip"
	"slices"
)

// SourceRanges say from where clients may come. Zero lets everyone in.
type SourceRanges struct {
	Limited bool           // no one else may come in
	Allowed []netip.Prefix // as Disjoint makes them
}

// Admits says whether a client may come in.
func (s SourceRanges) Admits(client netip.Addr) bool {
	return !s.Limited || slices.ContainsFunc(s.Allowed, func(p netip.Prefix) bool { return p.Contains(client.Unmap()) })
}

// Equal says whether two let the same clients in.
func (s SourceRanges) Equal(o SourceRanges) bool {
	return s.Limited == o.Limited && slices.Equal(s.Allowed, o.Allowed)
}

// Disjoint is a list of ranges for the same addresses in which none is within
// another, sorted: no two ranges overlap otherwise.
func Disjoint(ranges []netip.Prefix) []netip.Prefix {
	sorted := make([]netip.Prefix, 0, len(ranges))
	for _, r := range ranges {
		sorted = append(sorted, r.Masked())
	}
	slices.SortFunc(sorted, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var kept []netip.Prefix
	for _, r := range sorted {
		if n := len(kept); n == 0 || !kept[n-1].Overlaps(r) {
			kept = append(kept, r)
		}
	}
	return kept
}

// LocalPods say how the traffic of this node's own pods is told from what comes
// from elsewhere: by their addresses, or by the interface that they are behind.
// With neither, all traffic but the node's own counts as coming from outside.
type LocalPods struct {
	Ranges    []netip.Prefix // as Disjoint makes them
	Interface string         // its name; "cali*" is every one that begins with cali
}

// Of are the ranges of one family.
func (l LocalPods) Of(f Family) []netip.Prefix {
	var all []netip.Prefix
	for _, r := range l.Ranges {
		if FamilyOf(r.Addr()) == f {
			all = append(all, r)
		}
	}
	return all
}

// Contains says whether an address is known to be a pod's of this node.
func (l LocalPods) Contains(a netip.Addr) bool {
	return slices.ContainsFunc(l.Ranges, func(r netip.Prefix) bool { return r.Contains(a.Unmap()) })
}

// Equal says whether two are the same.
func (l LocalPods) Equal(o LocalPods) bool {
	return l.Interface == o.Interface && slices.Equal(l.Ranges, o.Ranges)
}
