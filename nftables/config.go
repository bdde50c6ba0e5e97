package nftables

import (
	"fmt"
	"net/netip"
	"regexp"
	"time"

	"github.com/hashicorp/go-multierror"

	"github.com/userspace-proxy/userspace-proxy/internal/redirects"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// TableName is the name of our tables. Every other name that this package
// accepts begins with it and a dash, so that Cleanup of any version finds them.
const TableName = "userspace-proxy"

// Config says what the rules are made for.
type Config struct {
	// Table is the name of the table in each family; TableName, or a name that
	// begins with it and a dash. Default: TableName.
	Table string

	// Listen is the address that listeners of each family are bound to. A
	// family that is absent gets no table, and its redirects are skipped: the
	// node lacks it.
	Listen map[service.Family]netip.Addr

	// SharedListen says that the node uses the listening addresses for other
	// things too. The guard then covers the ports of listeners alone, not the
	// whole range: it would cut off whoever else listens there (the kubelet's
	// 10250 lies in the default range). The price is that a listener that is
	// open and not yet, or no longer, led to can be reached directly.
	SharedListen bool

	// Ports is the range that listeners take their ports from. Default:
	// 10000–29999.
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

	// Timeout is how long one run of nft may take. Default: 10 s.
	Timeout time.Duration

	// CanaryPeriod is the time between two looks of Watch whether anything
	// has changed at all. Default: 1 s.
	CanaryPeriod time.Duration

	// CheckPeriod is the time between two comparisons of all of our tables by
	// Watch. Default: 30 s.
	CheckPeriod time.Duration
}

// Defaults fills in what was left out.
func (c Config) Defaults() Config {
	if c.Table == "" {
		c.Table = TableName
	}
	if c.Ports == (service.PortRange{}) {
		c.Ports = service.PortRange{First: 10000, Last: 29999}
	}
	if c.Mark == 0 {
		c.Mark = 0x4000000
	}
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	if c.CanaryPeriod == 0 {
		c.CanaryPeriod = time.Second
	}
	if c.CheckPeriod == 0 {
		c.CheckPeriod = 30 * time.Second
	}
	return c
}

// Validate says everything that is wrong, at once.
func (c Config) Validate() error {
	var faults *multierror.Error
	fault := func(format string, args ...any) {
		faults = multierror.Append(faults, fmt.Errorf(format, args...))
	}
	if !ours(c.Table) {
		fault("table %q: must be %q, or begin with %q and go on with at most 64 small letters, digits and dashes",
			c.Table, TableName, TableName+"-")
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
	if c.Mark == 0 {
		fault("mark 0: own dials could not be told from other traffic")
	}
	if c.Mark&c.Replies != 0 {
		fault("mark %#x of replies: must have none of the bits of %#x, which is that of own dials", c.Replies, c.Mark)
	}
	if why := redirects.CannotTell(c.LocalPods); why != "" {
		fault("local pods: %s", why)
	}
	if c.Timeout <= 0 {
		fault("timeout %s: must be above 0", c.Timeout)
	}
	if c.CanaryPeriod <= 0 || c.CheckPeriod <= 0 {
		fault("periods of checks %s and %s: must be above 0", c.CanaryPeriod, c.CheckPeriod)
	}
	return redirects.InOrder(faults)
}

// ours says whether a table's name is one that some version of this package
// may have made.
func ours(table string) bool {
	return regexp.MustCompile(`^` + TableName + `(-[a-z0-9-]{1,64})?$`).MatchString(table)
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
