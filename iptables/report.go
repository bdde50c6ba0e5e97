package iptables

import "github.com/userspace-proxy/userspace-proxy/service"

// Report is what Probe found.
type Report struct {
	Kind     Kind                     // the commands that work
	Version  string                   // as they print it: "iptables v1.8.9 (nf_tables)"
	Families []service.Family         // those in which our rules work
	Missing  map[service.Family]error // why they do not in the others

	// Untried is an ErrLocked where nothing could be tried because another
	// program held the xtables lock all the time. Families are then those that
	// have the commands, and Sync will tell whether the rules work.
	Untried error
}

// Counts are what the kernel has counted since a rule was written. A chain of
// the tree is written as a whole, so the counts of the few portals that stand
// in it start anew when one of them changes.
type Counts struct {
	// Portals has for each portal the connections and flows that came by it
	// (translation sees their first packets), or tried to.
	Portals map[Portal]uint64

	// Outside has the same for what is for those outside alone, which Portals
	// does not count.
	Outside map[Portal]uint64

	// Barred are connections and flows to portals from where nobody may come to
	// them.
	Barred uint64

	// Guarded are packets that talked to a listener past its portal.
	Guarded uint64
}
