package redirects

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// Place is where listeners may be.
type Place struct {
	Listen map[service.Family]netip.Addr // their address in each family that is served
	Ports  interface {                   // the range of their ports
		fmt.Stringer
		Contains(port uint16) bool
	}
}

// portal is what one redirect alone may have.
type portal struct {
	addr     netip.AddrPort
	protocol service.Protocol
	scope    service.Scope
}

// Settle returns the redirects that can be expressed, sorted by portal, their
// addresses without an IPv4-in-IPv6 form and listeners where the action needs
// one. Those that cannot be expressed are left out and named in the error; the
// others are whole. Skipped are redirects of a family that is not served, and
// those of loopback portals for Outside: nothing comes to one from there.
func Settle(all []service.Redirect, at Place) ([]service.Redirect, error) {
	settled := make(map[portal]service.Redirect, len(all))
	var faults *multierror.Error
	leaveOut := func(r service.Redirect, why string) {
		faults = multierror.Append(faults, fmt.Errorf("redirect of %q at %q left out: %s", r.Service, r.Portal, why))
	}
	for _, given := range all {
		r, why := at.settle(given)
		if why != "" {
			leaveOut(given, why)
			continue
		}
		if _, served := at.Listen[service.FamilyOf(r.Portal.Addr())]; !served {
			continue
		}
		if r.Scope == service.Outside && r.Portal.Addr().IsLoopback() {
			continue
		}
		key := portal{r.Portal, r.Protocol, r.Scope}
		if first, taken := settled[key]; taken && !first.Equal(r) {
			// Resolve lets only one Service have a portal. Whoever calls
			// without it gets the same winner in whatever order.
			if compare(first, r) > 0 {
				first, r = r, first
			}
			leaveOut(r, "another redirect has the portal")
			r = first
		}
		settled[key] = r
	}
	return slices.SortedFunc(maps.Values(settled), byPortal), InOrder(faults)
}

func byPortal(a, b service.Redirect) int {
	return cmp.Or(a.Portal.Compare(b.Portal), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Scope, b.Scope))
}

// compare orders redirects of one portal by who gets it.
func compare(a, b service.Redirect) int {
	return cmp.Or(
		cmp.Compare(a.Service.String(), b.Service.String()),
		cmp.Compare(a.Action, b.Action),
		a.Listener.Compare(b.Listener),
		cmp.Compare(fmt.Sprint(a.Sources), fmt.Sprint(b.Sources)),
	)
}

// settle is a redirect as rules express it, or why they cannot.
func (at Place) settle(r service.Redirect) (service.Redirect, string) {
	addr := r.Portal.Addr().Unmap()
	r.Portal = netip.AddrPortFrom(addr, r.Portal.Port())
	switch {
	case !addr.IsValid(), addr.Zone() != "", addr.IsUnspecified(), addr.IsMulticast():
		return r, "not an address that a portal can have"
	case r.Portal.Port() == 0:
		return r, "no port"
	case r.Protocol != service.TCP && r.Protocol != service.UDP:
		return r, fmt.Sprintf("no protocol %q here", r.Protocol)
	case r.Scope != service.Everyone && r.Scope != service.Outside:
		return r, fmt.Sprintf("no scope %q", r.Scope)
	case !rangesOf(service.FamilyOf(addr), r.Sources):
		return r, "source ranges of another family, or that overlap"
	}
	given := r.Listener
	r.Listener = netip.AddrPort{}
	switch r.Action {
	case service.Refuse, service.Drop:
	case service.ToListener:
		r.Listener = netip.AddrPortFrom(given.Addr().Unmap(), given.Port())
		listen, served := at.Listen[service.FamilyOf(addr)]
		if served && (r.Listener.Addr() != listen || !at.Ports.Contains(r.Listener.Port())) {
			return r, fmt.Sprintf("listener %q is not on %q with a port of %s, so that nothing guards it", given, listen, at.Ports)
		}
	default:
		return r, fmt.Sprintf("no action %q", r.Action)
	}
	return r, ""
}

// rangesOf says whether source ranges are such as rules can express.
func rangesOf(f service.Family, s service.SourceRanges) bool {
	for _, p := range s.Allowed {
		if !p.IsValid() || p.Addr().Is4In6() || p.Addr().Zone() != "" || service.FamilyOf(p.Addr()) != f || p.Bits() == 0 {
			return false
		}
	}
	return slices.Equal(s.Allowed, service.Disjoint(s.Allowed))
}

// InOrder is the error of some faults, each once, in whatever order they were
// found.
func InOrder(faults *multierror.Error) error {
	if faults != nil {
		slices.SortFunc(faults.Errors, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
		faults.Errors = slices.CompactFunc(faults.Errors, func(a, b error) bool { return a.Error() == b.Error() })
	}
	return faults.ErrorOrNil()
}

// interfaceName is what a rule may have as the name of an interface, which a *
// may end. The kernel takes 15 bytes.
var interfaceName = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,15}$`)

// CannotTell says why rules cannot tell local pods so; empty where they can.
func CannotTell(l service.LocalPods) string {
	if l.Interface != "" && !interfaceName.MatchString(strings.TrimSuffix(l.Interface, "*")) {
		return fmt.Sprintf("%q is not an interface's name or the beginning of one", l.Interface)
	}
	if len(l.Ranges) > 0 && l.Interface != "" {
		return "must be ranges or an interface, not both"
	}
	for _, f := range service.Families() {
		ranges := l.Of(f)
		for _, r := range ranges {
			if !r.IsValid() || r.Bits() == 0 || r.Addr().Is4In6() || r.Addr().Zone() != "" {
				return fmt.Sprintf("%s is not a range of pods", r)
			}
		}
		if !slices.Equal(ranges, service.Disjoint(ranges)) {
			return "ranges overlap, or are not sorted"
		}
	}
	return ""
}
