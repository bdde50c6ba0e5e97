package main

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/userspace-proxy/userspace-proxy/config"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// addrPatience is how long an address of the node that has gone is taken for one
// that comes back. A lease that is renewed, a network that is restarted and a router
// that is heard again take seconds; portals that lead nowhere for a minute harm
// nobody, since nobody reaches them.
const addrPatience = time.Minute

// nodeAddrs remembers which of the node's own addresses have just gone. Without
// one no Service of its family is served: all rules and listeners would go for an
// address that is back a second later. Kube-proxy keeps the families that it has
// started with.
type nodeAddrs struct {
	log  logrus.FieldLogger
	gone map[service.Family]goneAddr // nil: none
}

// goneAddr is an address of the node that was its own in a family.
type goneAddr struct {
	since time.Time
	kept  bool // there is no other, so that it stays in use
}

// awaited says whether an address has just gone and may come back.
func (a *nodeAddrs) awaited() bool { return len(a.gone) > 0 }

// heed is the node as it is to be resolved for: as it is now, with the addresses
// that it had before in a family in which it has just lost its own.
//
// Another address in the place of one that has gone is taken at once: it serves
// the family, and so nothing ends but node ports on the old one, which no client
// reaches, and which somebody else may have by now. It is awaited all the same, so
// that these are served again as soon as it is back.
func (a *nodeAddrs) heed(now, before config.Node) config.Node {
	for _, f := range service.Families() {
		is, was := now.Primary[f], before.Primary[f]
		gone := a.gone[f]
		over := time.Since(gone.since) >= addrPatience
		switch {
		case !was.IsValid(): // there was none, or it has been given up
		case is == was:
			if gone.kept {
				a.log.Infof("this node has its %s address %s again", f, is)
			}
			if gone.kept || over {
				delete(a.gone, f)
			}
		case is.IsValid():
			a.log.Infof("this node's own %s address is %s now, and was %s", f, is, was)
			a.await(f, goneAddr{since: time.Now()})
		case !gone.kept:
			a.log.Warnf("this node has lost its %s address %s: going on with it for %v, in case it comes back", f, was, addrPatience)
			a.await(f, goneAddr{since: time.Now(), kept: true})
			now = withAddrs(now, before, f)
		case over:
			a.log.Warnf("this node's %s address %s has not come back in %v, and is given up", f, was, addrPatience)
			delete(a.gone, f)
		default:
			now = withAddrs(now, before, f)
		}
	}
	return now
}

func (a *nodeAddrs) await(f service.Family, gone goneAddr) {
	if a.gone == nil {
		a.gone = map[service.Family]goneAddr{}
	}
	a.gone[f] = gone
}

// withAddrs is a node with the addresses of a family that it had before, beside
// those that it has.
func withAddrs(now, before config.Node, f service.Family) config.Node {
	both := func(now, before []netip.Addr) []netip.Addr {
		others := slices.DeleteFunc(slices.Clone(before), func(a netip.Addr) bool { return service.FamilyOf(a) != f })
		all := slices.Concat(now, others)
		slices.SortFunc(all, netip.Addr.Compare)
		return slices.Compact(all)
	}
	now.Primary = maps.Clone(now.Primary)
	now.Primary[f] = before.Primary[f]
	now.Local = both(now.Local, before.Local)
	now.NodePortAddresses = both(now.NodePortAddresses, before.NodePortAddresses)
	return now
}
