package listenaddr

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// Ensure makes sure that the addresses are on lo of the calling thread's
// network namespace and look as they should. It may be called again at any
// time: what is right already is not touched, not even for a moment.
//
// A family that the node lacks (IPv6 switched off) is left out of the result
// and is not an error. An address that another interface has is one: it is
// somebody else's.
func Ensure(addrs map[service.Family]netip.Addr) (Result, error) {
	result := Result{Listen: make(map[service.Family]netip.Addr), Missing: make(map[service.Family]string)}
	lo, err := openLo()
	if err != nil {
		return Result{}, fmt.Errorf("ensuring the listening addresses: %w", err)
	}
	defer lo.Close()
	if lo.link.Attrs().Flags&net.FlagUp == 0 {
		return Result{}, errors.New("ensuring the listening addresses: the interface lo is down: bring it up with `ip link set lo up`")
	}
	for _, family := range service.Families() {
		addr, wanted := addrs[family]
		if !wanted {
			continue
		}
		why, err := lacks(family)
		if err == nil && why == "" {
			err = lo.ensure(addr)
		}
		if err != nil {
			return Result{}, fmt.Errorf("ensuring the listening address %s: %w", addr, advise(err))
		}
		if why != "" {
			result.Missing[family] = why
			continue
		}
		result.Listen[family] = addr
	}
	return result, nil
}

// Check says whether addresses that Ensure has made are there: an ErrDamaged names
// one that is gone. It costs some microseconds.
func Check(addrs map[service.Family]netip.Addr) error {
	for family, addr := range addrs {
		if !isGone(addr) {
			continue
		}
		if why, err := lacks(family); err == nil && why == "" {
			return fmt.Errorf("the listening address %s: %w", addr, ErrDamaged)
		}
	}
	return nil
}

// isGone asks from where packets to an address would be sent: from itself, as long as
// it is this node's. Nothing is sent. A socket could be bound to it all the same where
// net.ipv4.ip_nonlocal_bind is set.
func isGone(addr netip.Addr) bool {
	const discard = 9
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, discard)))
	if err != nil { // there may be no descriptor, say, which tells nothing
		return errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.EADDRNOTAVAIL)
	}
	defer c.Close() //nolint:errcheck // a datagram socket has nothing to flush
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap() != addr
}

// Remove takes the addresses off lo, those that are there.
func Remove(addrs map[service.Family]netip.Addr) error {
	lo, err := openLo()
	if err != nil {
		return fmt.Errorf("removing the listening addresses: %w", err)
	}
	defer lo.Close()
	var errs error
	for _, family := range service.Families() {
		addr, given := addrs[family]
		if !given {
			continue
		}
		if err := lo.remove(addr); err != nil {
			errs = errors.Join(errs, fmt.Errorf("removing the listening address %s: %w", addr, advise(err)))
		}
	}
	return errs
}

// lacks says why the node lacks a family; empty where it has it.
func lacks(family service.Family) (string, error) {
	if family == service.IPv4 {
		return "", nil // no kernel comes without
	}
	disabled, err := os.ReadFile("/proc/sys/net/ipv6/conf/lo/disable_ipv6")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "the kernel has no IPv6", nil
	case err != nil:
		return "", fmt.Errorf("finding out whether there is IPv6: %w", err)
	case strings.TrimSpace(string(disabled)) != "0":
		return "IPv6 is switched off on lo (net.ipv6.conf.lo.disable_ipv6)", nil
	}
	return "", nil
}

// loopback is the interface lo and a socket to change it by.
type loopback struct {
	*netlink.Handle
	link netlink.Link
}

// openLo is closed by its caller.
func openLo() (*loopback, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening netlink: %w", err)
	}
	link, err := h.LinkByName("lo")
	if err != nil {
		h.Close()
		return nil, fmt.Errorf("finding the interface lo: %w", err)
	}
	return &loopback{h, link}, nil
}

func (lo *loopback) ensure(addr netip.Addr) error {
	want := wanted(addr)
	there, err := lo.find(addr)
	if err != nil {
		return err
	}
	for i := range there {
		a := &there[i]
		if a.LinkIndex != lo.link.Attrs().Index {
			return fmt.Errorf("another interface (number %d) has it: take it off there, or choose other addresses with --bind-address", a.LinkIndex)
		}
		if alike(a, want) {
			return nil
		}
		// An address that an older version or a person added. Neither its
		// scope nor its prefix can be changed in place.
		if err := lo.AddrDel(lo.link, a); err != nil {
			return fmt.Errorf("removing %s, which is not as it should be: %w", a.IPNet, err)
		}
	}
	err = lo.AddrAdd(lo.link, want)
	if errors.Is(err, unix.EEXIST) {
		return nil // somebody else's Ensure came first
	}
	return err
}

func (lo *loopback) remove(addr netip.Addr) error {
	there, err := lo.find(addr)
	if err != nil {
		return err
	}
	for i := range there {
		if there[i].LinkIndex != lo.link.Attrs().Index {
			continue
		}
		err := lo.AddrDel(lo.link, &there[i])
		if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) { // gone meanwhile
			return err
		}
	}
	return nil
}

// find finds an address on whatever interface.
func (lo *loopback) find(addr netip.Addr) ([]netlink.Addr, error) {
	family := netlink.FAMILY_V4
	if addr.Is6() {
		family = netlink.FAMILY_V6
	}
	all, err := lo.AddrList(nil, family)
	if err != nil {
		return nil, fmt.Errorf("listing addresses: %w", err)
	}
	var found []netlink.Addr
	for _, a := range all {
		if a.IP.Equal(addr.AsSlice()) {
			found = append(found, a)
		}
	}
	return found, nil
}

// wanted is an address as it should be on lo.
func wanted(addr netip.Addr) *netlink.Addr {
	a := &netlink.Addr{IPNet: &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}}
	if addr.Is4() {
		a.Scope = unix.RT_SCOPE_HOST // never a source for what leaves the node
		return a
	}
	// IPv6 has no such scope to choose. A deprecated address is not chosen as
	// a source while there is another, and is a destination like any. Nobody
	// else is on lo to have the same one.
	a.Flags = unix.IFA_F_NODAD
	a.PreferedLft = 0
	a.ValidLft = math.MaxUint32 & math.MaxInt // for ever; 68 years where an int has 32 bits
	return a
}

// alike says whether an address that is there is the wanted one.
func alike(a, want *netlink.Addr) bool {
	ones, bits := a.Mask.Size()
	if ones != bits {
		return false
	}
	if want.IP.To4() != nil {
		return a.Scope == want.Scope
	}
	return a.Flags&unix.IFA_F_DEPRECATED != 0
}

// advise says what to do about an error of the kernel.
func advise(err error) error {
	if errors.Is(err, unix.EPERM) {
		return ErrNoRight
	}
	return err
}
