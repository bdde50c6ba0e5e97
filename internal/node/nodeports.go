package node

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// Selection chooses the addresses on which node ports are served. The zero
// value chooses the node's own address in each family.
type Selection struct {
	primary, localhost, all bool
	ranges                  []netip.Prefix
}

// ParseSelection reads what --nodeport-addresses takes: ranges of addresses
// (CIDRs) and the words "primary", "localhost" and "all". It tells all that is
// wrong.
func ParseSelection(values []string) (Selection, error) {
	var s Selection
	var faults *multierror.Error
	for _, v := range values {
		switch v = strings.TrimSpace(v); v {
		case "primary":
			s.primary = true
		case "localhost":
			s.localhost = true
		case "all":
			s.all = true
		default:
			r, err := netip.ParsePrefix(v)
			if err != nil {
				faults = multierror.Append(faults, fmt.Errorf("%q is neither a range of addresses like 192.0.2.0/24 nor primary, localhost or all", v))
				continue
			}
			s.ranges = append(s.ranges, r.Masked())
		}
	}
	return s, faults.ErrorOrNil()
}

// Of are the chosen addresses of a node, sorted. Those that the proxy keeps
// for its listeners (except) are never among them, nor are the link-local
// IPv6 ones, which mean nothing without an interface.
func (s Selection) Of(f Facts, except ...netip.Addr) []netip.Addr {
	if !s.primary && !s.localhost && !s.all && len(s.ranges) == 0 {
		s.primary = true
	}
	var chosen []netip.Addr
	for _, a := range f.Local {
		linkLocal := a.Is6() && a.IsLinkLocalUnicast()
		if !linkLocal && !slices.Contains(except, a) && s.takes(f, a) {
			chosen = append(chosen, a)
		}
	}
	return chosen
}

func (s Selection) takes(f Facts, a netip.Addr) bool {
	return s.all ||
		s.localhost && a.IsLoopback() ||
		s.primary && f.Primary[service.FamilyOf(a)] == a ||
		slices.ContainsFunc(s.ranges, func(r netip.Prefix) bool { return r.Contains(a) })
}
