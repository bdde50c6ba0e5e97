package nftables

import (
	"net/netip"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// Report is what Probe found.
type Report struct {
	Version  string                   // the first line of `nft --version`
	Families []service.Family         // those in which our rules work
	Missing  map[service.Family]error // why they do not in the others
}

// Portal is what the kernel counts by.
type Portal struct {
	Addr     netip.AddrPort
	Protocol service.Protocol
}

// Counts are what the kernel has counted since an element was made or last
// changed. They start anew when the tables are replaced.
type Counts struct {
	// Portals has for a portal that leads to a listener the connections and
	// flows that came by it (translation sees their first packets), and for
	// one that is refused or dropped the packets.
	Portals map[Portal]uint64

	// Outside has the same for what is for those outside alone, which Portals
	// does not count.
	Outside map[Portal]uint64

	// Barred are packets to portals from where nobody may come to them.
	Barred uint64

	// Guarded are packets that talked to a listener past its portal.
	Guarded uint64
}
