package iptables

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/hashicorp/go-multierror"

	"github.com/userspace-proxy/userspace-proxy/internal/redirects"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// Kind says which of the installed iptables commands are used.
type Kind string

// The kinds. A distribution may have both others installed; its "iptables" is
// one of them.
const (
	System Kind = ""       // iptables: what the distribution or the administrator chose
	NFT    Kind = "nft"    // iptables-nft: changes nf_tables
	Legacy Kind = "legacy" // iptables-legacy: changes ip_tables
)

// Command is the name of the kind's command for one family: "ip6tables-legacy".
func (k Kind) Command(f service.Family) string {
	name := "iptables"
	if f == service.IPv6 {
		name = "ip6tables"
	}
	if k != System {
		name += "-" + string(k)
	}
	return name
}

// Config says what the rules are made for.
type Config struct {
	// Kind says which commands are used. Default: System.
	Kind Kind

	// Listen is the address that listeners of each family are bound to. A
	// family that is absent gets no rules, and its redirects are skipped: the
	// node lacks it.
	Listen map[service.Family]netip.Addr

	// SharedListen says that the node uses the listening addresses for other
	// things too. The guard then covers the ports of listeners alone, not the
	// whole range: it would cut off whoever else listens there (the kubelet's
	// 10250 lies in the default range). The price is that a listener that is
	// open and not yet, or no longer, led to can be reached directly.
	SharedListen bool

	// Ports is the range that listeners take their ports from. It must leave
	// 1 and 2, or 65534 and 65535, to the rules. Default: 10000–29999.
	Ports service.PortRange

	// Mark is the bit, or the bits, that the proxy's own dials carry
	// (SO_MARK). Rules for the node's own traffic skip them. Default: 0x4000000.
	Mark uint32

	// Replies is the bit, or the bits, that packets get for which there is a
	// transparent socket on this node, one that speaks from an address that is not
	// the node's: policy routing delivers them here. It has none of Mark. 0: there
	// are no such sockets, and no rule for them.
	Replies uint32

	// LocalPods say how the traffic of pods on this node is told from what
	// comes from outside. A Runner is told of other ranges by SetLocalPods.
	// Default: there is none such.
	LocalPods service.LocalPods

	// LockWait is how long a command waits for the xtables lock, in whole
	// seconds. iptables-nft needs no lock. Default: 5 s.
	LockWait time.Duration

	// Timeout is how long one run of iptables-restore or iptables-save may
	// take, waiting for the lock included. Default: 30 s.
	Timeout time.Duration

	// CanaryPeriod is the time between two looks of Watch whether anything
	// has changed at all. Default: 1 s.
	CanaryPeriod time.Duration

	// CheckPeriod is the time between two comparisons of every rule by Watch.
	// Default: 30 s.
	CheckPeriod time.Duration
}

// written is a range as iptables writes it: "10000:29999".
func written(r service.PortRange) string {
	if r.First == r.Last {
		return fmt.Sprint(r.First)
	}
	return fmt.Sprintf("%d:%d", r.First, r.Last)
}

// Defaults fills in what was left out.
func (c Config) Defaults() Config {
	c.Ports = cmp.Or(c.Ports, service.PortRange{First: 10000, Last: 29999})
	c.Mark = cmp.Or(c.Mark, 0x4000000)
	c.LockWait = cmp.Or(c.LockWait, 5*time.Second)
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	c.CanaryPeriod = cmp.Or(c.CanaryPeriod, time.Second)
	c.CheckPeriod = cmp.Or(c.CheckPeriod, 30*time.Second)
	return c
}

// Validate says everything that is wrong, at once.
func (c Config) Validate() error {
	var faults *multierror.Error
	fault := func(format string, args ...any) {
		faults = multierror.Append(faults, fmt.Errorf(format, args...))
	}
	if !slices.Contains([]Kind{System, NFT, Legacy}, c.Kind) {
		fault("kind %q: must be %q, %q or empty", c.Kind, NFT, Legacy)
	}
	if len(c.Listen) == 0 {
		fault("no listening address in any family")
	}
	for family, addr := range c.Listen {
		if why := cannotListen(family, addr); why != "" {
			fault("listening address %q of %q: %s", addr, family, why)
		}
	}
	if c.Ports.First == 0 || c.Ports.First > c.Ports.Last {
		fault("port range %s: must begin above 0 and not end before it begins", c.Ports)
	}
	if refuse, drop := c.sinks(); c.Ports.Contains(refuse) || c.Ports.Contains(drop) {
		fault("port range %s: must leave the ports 1 and 2, or 65534 and 65535, for what is refused and dropped", c.Ports)
	}
	if why := redirects.CannotTell(c.LocalPods); why != "" {
		fault("local pods: %s", why)
	}
	if c.Mark == 0 {
		fault("mark 0: own dials could not be told from other traffic")
	}
	if c.Mark&c.Replies != 0 {
		fault("mark %#x of replies: must have none of the bits of %#x, which is that of own dials", c.Replies, c.Mark)
	}
	if c.LockWait < time.Second || c.LockWait%time.Second != 0 {
		fault("lock wait %s: must be whole seconds, one at least", c.LockWait)
	}
	if c.Timeout <= c.LockWait {
		fault("timeout %s: must be above the lock wait of %s", c.Timeout, c.LockWait)
	}
	if c.CanaryPeriod <= 0 || c.CheckPeriod <= 0 {
		fault("periods of checks %s and %s: must be above 0", c.CanaryPeriod, c.CheckPeriod)
	}
	return redirects.InOrder(faults)
}

// sinks are the ports of the listening address to which refused and dropped
// portals are translated. Nobody listens there, and INPUT lets nothing get
// that far.
func (c Config) sinks() (refuse, drop uint16) {
	if c.Ports.Last < 65534 {
		return 65534, 65535
	}
	return 1, 2
}

func cannotListen(family service.Family, addr netip.Addr) string {
	switch {
	case family != service.IPv4 && family != service.IPv6:
		return "no such family"
	case !addr.IsValid() || addr.Zone() != "" || addr.Is4In6() || service.FamilyOf(addr) != family:
		return "not an address of the family"
	case addr.IsUnspecified(), addr.IsMulticast():
		return "must be one address of the node"
	case addr.IsLoopback():
		return "the kernel takes nothing for a loopback address from outside (and route_localnet would open all of them)"
	}
	return ""
}
