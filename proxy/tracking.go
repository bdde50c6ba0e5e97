package proxy

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// Conntrack is the kernel's connection tracking, as far as rules depend on it:
// conntrack.Table.
type Conntrack interface {
	// DeleteUDP deletes the UDP entries of a family that stale says so of,
	// given the sender, the destination that it means and the one that its
	// datagrams are led to, and returns how many. Stale is called before
	// DeleteUDP returns, and must be quick: there may be 100,000 entries.
	DeleteUDP(f service.Family, stale func(from netip.Addr, to, ledTo netip.AddrPort) bool) (deleted int, err error)
	// UDPTimeouts is how long an entry lives without traffic, as long as there
	// has been no reply and afterwards.
	UDPTimeouts() (unanswered, answered time.Duration, err error)
}

// tracking keeps the entries of UDP senders as the rules would make them now.
// Rules are asked for the first datagram of a sender alone, and as long as it
// goes on sending an entry lives on: one from before its portal's rule leads to
// nobody, one to a listener that is gone is refused.
//
// TCP needs none of this. A connection of a Service that is gone ends by itself,
// and none begins by an old entry.
//
// All methods but damaged are for the Proxier's Reconcile alone.
type tracking struct {
	table   Conntrack // nil: nothing is translated, or nobody can look
	listen  map[service.Family]netip.Addr
	ports   service.PortRange
	metrics *Metrics

	isHere func(netip.Addr) bool // whether an address is this host's; nil: none is known to be

	// led is where the UDP portals of a family were led when its entries were
	// last looked through, and pods how those on this node were told then; there
	// is none before the first time.
	led      map[service.Family]leads
	pods     service.LocalPods
	suspect  bool        // entries may have been made while there were no rules
	wasWiped atomic.Bool // what suspect becomes, before rules are made anew
}

// leads is where UDP portals are led.
type leads map[netip.AddrPort]lead

// lead is where one portal is led: to a listener, or to the zero AddrPort where it
// is refused or dropped.
type lead struct {
	everyone netip.AddrPort
	outside  netip.AddrPort // where scoped: what comes from outside
	scoped   bool
	sources  service.SourceRanges
}

func (l lead) equal(o lead) bool {
	return l.everyone == o.everyone && l.outside == o.outside && l.scoped == o.scoped && l.sources.Equal(o.sources)
}

func newTracking(c Config) *tracking {
	return &tracking{table: c.Conntrack, listen: c.Listen, ports: c.Ports, metrics: c.Metrics, led: make(map[service.Family]leads)}
}

// damaged says that rules were not there for some time. Anybody may call it.
func (t *tracking) damaged() { t.wasWiped.Store(true) }

// begin is called before rules are made: what is damaged from then on may be so
// still when follow looks, and is for the next time.
func (t *tracking) begin() { t.suspect = t.wasWiped.Swap(false) || t.suspect }

// leadsOf are those of redirects, by family.
func leadsOf(redirects []service.Redirect) map[service.Family]leads {
	all := make(map[service.Family]leads)
	for _, r := range redirects {
		if r.Protocol != service.UDP {
			continue
		}
		f := service.FamilyOf(r.Portal.Addr())
		if all[f] == nil {
			all[f] = make(leads)
		}
		l := all[f][r.Portal]
		if r.Scope == service.Outside {
			l.outside, l.scoped = r.Listener, true
		} else {
			l.everyone = r.Listener
		}
		l.sources = r.Sources
		all[f][r.Portal] = l
	}
	return all
}

// follow deletes the entries that these redirects, which are in force, would not
// make. Where nothing of UDP has changed it does nothing, else it looks through
// the entries of that family once. An entry that leads to one of the listeners
// that are served, all of UDP, is left alone, unless its portal leads elsewhere
// now, or its sender may not come any more. It says whose ports no entry leads to
// that were let go of before the call.
func (t *tracking) follow(redirects []service.Redirect, pods service.LocalPods, served map[netip.AddrPort]bool, resting func(socketPlace) bool) (clean []socketPlace, err error) {
	if t.table == nil {
		return nil, nil
	}
	t.suspect = !t.pods.Equal(pods) || t.suspect
	t.pods = pods
	now := leadsOf(redirects)
	var errs []error
	for f := range t.listen {
		place := socketPlace{f, service.UDP}
		before, looked := t.led[f]
		if looked && !t.suspect && !resting(place) && maps.EqualFunc(before, now[f], lead.equal) {
			continue
		}
		deleted, err := t.table.DeleteUDP(f, t.judge(f, now[f], served))
		t.metrics.conntrackDeleted.Add(float64(deleted))
		if err != nil {
			t.metrics.conntrackFailures.Inc()
			errs = append(errs, err)
			continue
		}
		t.led[f] = now[f]
		clean = append(clean, place)
	}
	if len(errs) == 0 {
		t.suspect = false
	}
	return clean, errors.Join(errs...)
}

// judge says of an entry whether it is stale.
func (t *tracking) judge(f service.Family, led leads, served map[netip.AddrPort]bool) func(from netip.Addr, to, ledTo netip.AddrPort) bool {
	listen := t.listen[f]
	before, looked := t.led[f]
	return func(from netip.Addr, to, ledTo netip.AddrPort) bool {
		if l, is := led[to]; is {
			return !l.sources.Admits(from) || t.leadsElsewhere(l, before[to], from, ledTo)
		}
		if ledTo == to || ledTo.Addr() != listen || !t.ports.Contains(ledTo.Port()) {
			return false // not of our rules
		}
		// It leads to a port of ours from what is no portal any more. Before
		// the first look the port was a process's that has ended, whoever has
		// it now.
		return !looked || !served[ledTo]
	}
}

// leadsElsewhere says whether a portal leads a sender elsewhere than its entry.
// Where pods are told by their interface an entry does not say whose it is: then
// each of the portal's two ways is as good, unless they have just changed.
func (t *tracking) leadsElsewhere(now, before lead, from netip.Addr, ledTo netip.AddrPort) bool {
	switch {
	case !now.scoped, from.IsLoopback(), t.isHere != nil && t.isHere(from), t.pods.Contains(from):
		return ledTo != now.everyone
	case t.pods.Interface == "":
		return ledTo != now.outside
	}
	return ledTo != now.everyone && ledTo != now.outside || !now.equal(before)
}

// problem is what people are told of an error of follow.
func (t *tracking) problem(err error) service.Problem {
	return service.Problem{
		Object: "this node", Reason: "ConntrackFailed",
		Detail: fmt.Sprintf("clients that go on sending UDP from one port may be led to where a Service was before: %v", err),
		Advice: "it is tried again; it needs CAP_NET_ADMIN and the kernel module nf_conntrack_netlink",
	}
}

// entryLife is how long an entry lives after the last datagram. Of one whose sender
// goes on sending it says nothing: only follow finds those.
func (t *tracking) entryLife() time.Duration {
	const usual = 180 * time.Second // what kernels have forgotten every sender after that nobody has set otherwise
	unanswered, answered, err := t.table.UDPTimeouts()
	if err != nil {
		return usual
	}
	return max(unanswered, answered)
}

// flowIdle is how long a flow may be idle that is to be so for as long as want.
// A flow must end before its entry does: a reply that comes later would leave
// with the listener's address and not the portal's. Where the kernel's timeout
// does not allow want there is a problem to tell of.
func (t *tracking) flowIdle(want time.Duration) (time.Duration, *service.Problem) {
	if t.table == nil {
		return want, nil
	}
	unanswered, answered, err := t.table.UDPTimeouts()
	kernel := min(unanswered, answered)
	if err != nil || kernel <= 0 {
		return want, nil // nothing is tracked yet
	}
	idle := min(want, kernel-kernel/30) // the entry's time begins a little before the flow's
	if want <= kernel {
		return idle, nil
	}
	return idle, &service.Problem{
		Object: "this node", Reason: "UDPTimeoutTooLong",
		Detail: fmt.Sprintf("UDP flows end after %v and not %v: the kernel forgets after %v whom a reply is for", idle, want, kernel),
		Advice: fmt.Sprintf("set net.netfilter.nf_conntrack_udp_timeout and net.netfilter.nf_conntrack_udp_timeout_stream to %d or more with sysctl, or --udp-timeout to %v or less",
			int((want+time.Second-1)/time.Second), kernel),
	}
}
