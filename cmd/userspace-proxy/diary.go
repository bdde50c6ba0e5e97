package main

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/sirupsen/logrus"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// diary writes to the log what has changed, and nothing twice.
type diary struct {
	log     logrus.FieldLogger
	served  []service.Port
	summary string
	known   map[service.Problem]bool
}

// serving tells in one line what is served, where a portal has come or gone or
// the line reads otherwise. Endpoints come and go too often for that.
func (d *diary) serving(ports []service.Port, summary string) {
	same := slices.EqualFunc(d.served, ports, func(a, b service.Port) bool {
		return a.Key == b.Key && slices.Equal(a.Portals, b.Portals)
	})
	if !same || summary != d.summary {
		d.log.Info(summary)
	}
	d.served, d.summary = ports, summary
}

// problems tells of those that are new: a cluster with a thousand faults does
// not fill the log.
func (d *diary) problems(all []service.Problem) {
	const most = 20
	known := make(map[service.Problem]bool, len(all))
	fresh := 0
	for _, p := range all {
		known[p] = true
		if d.known[p] {
			continue
		}
		fresh++
		if fresh <= most {
			d.log.Warn(p)
		}
	}
	if fresh > most {
		d.log.Warnf("%d more problems, see /statusz", fresh-most)
	}
	d.known = known
}

// portalAt is a portal of a service port.
type portalAt struct {
	port string
	addr netip.AddrPort
}

// counts are how much is served.
type counts struct{ ports, services, portals int }

// countOf counts the portals that are served, and what has some. A dual-stack
// port is one port.
func countOf(all []service.Port, served func(portalAt) bool) counts {
	type name struct{ namespace, service string }
	ports, services, portals := map[service.PortName]bool{}, map[name]bool{}, 0
	for _, p := range all {
		for _, portal := range p.Portals {
			if served(portalAt{p.PortName.String(), portal.Addr}) {
				ports[p.PortName] = true
				services[name{p.Namespace, p.Name}] = true
				portals++
			}
		}
	}
	return counts{len(ports), len(services), portals}
}

// String is the counts in words.
func (c counts) String() string {
	return fmt.Sprintf("%s of %s at %s", count(c.ports, "port"), count(c.services, "service"), count(c.portals, "portal"))
}

// count is a number of things in words.
func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
