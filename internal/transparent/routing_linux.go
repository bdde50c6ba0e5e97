package transparent

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// MayDial says why this process may not dial from clients' addresses.
func MayDial() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening a socket: %w", err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was done with it
	err = unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_TRANSPARENT, 1)
	if errors.Is(err, unix.EPERM) {
		return ErrNoRight
	}
	if err != nil {
		return fmt.Errorf("setting IP_TRANSPARENT: %w", err)
	}
	return looksBackUnmarked()
}

// looksBackUnmarked says whether the kernel checks where a packet is from without
// its mark. With it, it would find that replies are from this node itself, and drop
// them.
func looksBackUnmarked() error {
	const file = "/proc/sys/net/ipv4/conf/all/src_valid_mark"
	value, err := os.ReadFile(file)
	if err == nil && strings.TrimSpace(string(value)) != "0" {
		return errors.New("net.ipv4.conf.all.src_valid_mark is on, with which the kernel drops the replies: set it to 0, or do without --transparent")
	}
	return nil
}

// Ensure makes the rule and the route of each family, where they are not there,
// and removes other rules that lead to our table: those of a run with other marks.
func (r Routing) Ensure() error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("opening netlink for policy routing: %w", err)
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("finding the interface lo: %w", err)
	}
	for _, f := range service.Families() {
		if err := r.ensure(h, lo.Attrs().Index, f); err != nil {
			return fmt.Errorf("ensuring the policy routing of %s: %w", f, advise(err))
		}
	}
	return nil
}

func (r Routing) ensure(h *netlink.Handle, lo int, f service.Family) error {
	if slices.Contains(r.Families, f) { // first: a rule that leads to an empty table leads on
		if err := h.RouteReplace(route(f, lo)); err != nil {
			return fmt.Errorf("adding the route: %w", err)
		}
	}
	rules, err := ours(h, f)
	if err != nil {
		return err
	}
	there := false
	for i := range rules {
		if !there && slices.Contains(r.Families, f) && r.isOurs(&rules[i]) {
			there = true
			continue
		}
		if err := h.RuleDel(&rules[i]); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("removing the rule %v: %w", rules[i], err)
		}
	}
	if there || !slices.Contains(r.Families, f) {
		return nil
	}
	if err := h.RuleAdd(r.rule(f)); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("adding the rule: %w", err)
	}
	return nil
}

// Check says whether rules and routes are as Ensure makes them: an ErrDamaged
// where they are not.
func (r Routing) Check() error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("opening netlink to check policy routing: %w", err)
	}
	defer h.Close()
	for _, f := range r.Families {
		rules, err := ours(h, f)
		if err != nil {
			return fmt.Errorf("checking the policy routing of %s: %w", f, err)
		}
		if len(rules) != 1 || !r.isOurs(&rules[0]) {
			return fmt.Errorf("the policy rule of %s that leads to table %d: %w", f, Table, ErrDamaged)
		}
		routes, err := routesOf(h, f)
		if err != nil {
			return fmt.Errorf("checking the policy routing of %s: %w", f, err)
		}
		if !slices.ContainsFunc(routes, isOurRoute) {
			return fmt.Errorf("the route of %s in table %d: %w", f, Table, ErrDamaged)
		}
	}
	return nil
}

// Remove takes away rules and routes, those that are there, whatever their marks.
func Remove() error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("opening netlink for policy routing: %w", err)
	}
	defer h.Close()
	var errs error
	for _, f := range service.Families() {
		if err := remove(h, f); err != nil {
			errs = errors.Join(errs, fmt.Errorf("removing the policy routing of %s: %w", f, advise(err)))
		}
	}
	return errs
}

func remove(h *netlink.Handle, f service.Family) error {
	rules, err := ours(h, f)
	if err != nil {
		return err
	}
	for i := range rules {
		if err := h.RuleDel(&rules[i]); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	routes, err := routesOf(h, f)
	if err != nil {
		return err
	}
	for i := range routes {
		if !isOurRoute(routes[i]) {
			continue
		}
		if err := h.RouteDel(&routes[i]); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// ours are the rules that lead to our table.
func ours(h *netlink.Handle, f service.Family) ([]netlink.Rule, error) {
	rules, err := h.RuleListFiltered(number(f), &netlink.Rule{Table: Table}, netlink.RT_FILTER_TABLE)
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil // the kernel lacks the family, or policy routing
	}
	if err != nil {
		return nil, fmt.Errorf("listing rules: %w", err)
	}
	for i := range rules {
		rules[i].Family = number(f)
	}
	return rules, nil
}

func routesOf(h *netlink.Handle, f service.Family) ([]netlink.Route, error) {
	routes, err := h.RouteListFiltered(number(f), &netlink.Route{Table: Table}, netlink.RT_FILTER_TABLE)
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing routes: %w", err)
	}
	return routes, nil
}

func number(f service.Family) int {
	if f == service.IPv6 {
		return netlink.FAMILY_V6
	}
	return netlink.FAMILY_V4
}

// rule leads marked packets to our table.
func (r Routing) rule(f service.Family) *netlink.Rule {
	rule := netlink.NewRule()
	mask := r.Reply | r.Own
	rule.Family, rule.Table, rule.Priority, rule.Mark, rule.Mask = number(f), Table, Priority, r.Reply, &mask
	return rule
}

func (r Routing) isOurs(rule *netlink.Rule) bool {
	return rule.Priority == Priority && rule.Mark == r.Reply && rule.Mask != nil && *rule.Mask == r.Reply|r.Own && !rule.Invert &&
		rule.IifName == "" && rule.OifName == "" && rule.Src == nil && rule.Dst == nil
}

// route delivers everything to this node.
func route(f service.Family, lo int) *netlink.Route {
	bits := 32
	if f == service.IPv6 {
		bits = 128
	}
	return &netlink.Route{
		Family: number(f), Table: Table, LinkIndex: lo, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST,
		Dst: &net.IPNet{IP: make(net.IP, bits/8), Mask: net.CIDRMask(0, bits)},
	}
}

func isOurRoute(r netlink.Route) bool {
	if r.Dst != nil {
		if ones, _ := r.Dst.Mask.Size(); ones != 0 {
			return false
		}
	}
	return r.Type == unix.RTN_LOCAL
}

// advise says what to do about an error of the kernel.
func advise(err error) error {
	if errors.Is(err, unix.EPERM) {
		return ErrNoRight
	}
	return err
}
