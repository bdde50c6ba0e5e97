package main

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/userspace-proxy/userspace-proxy/internal/status"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// health is for probes. Before every source has delivered, or its time is
// over, nothing is promised.
func (s *server) health() status.Health {
	done := s.proxier.Progress()
	h := status.Health{
		Updated:  done.Synced,
		Overdue:  !done.Waiting.IsZero() && time.Since(done.Waiting) > 2*s.options.syncPeriod,
		UsedUp:   s.proxier.Descriptors().UsedUp(),
		Draining: s.stopping.Load(),

		Ineligible: s.ineligible(),

		Families: s.families(),
	}
	switch waiting := s.nodeWatch.waiting(); {
	case waiting != "":
		h.Starting = waiting
	case !s.translator.hasTold():
		h.Starting = "waiting for the first full state of every source"
	case done.Synced.IsZero():
		h.Starting = "the first reconcile is not done"
	}
	if done.Err != nil {
		h.Failing = "listeners and rules cannot be made as they should be; /statusz and the log say why"
	}
	for _, source := range s.services.Snapshot().Sources {
		if source.Err != "" {
			h.Stale = append(h.Stale, source.Name)
		}
	}
	return h
}

// families are those that are served.
func (s *server) families() []service.Family {
	_, on := s.translator.told()
	return slices.DeleteFunc(service.Families(), func(f service.Family) bool {
		_, ok := on.Primary[f]
		return !ok
	})
}

// report is everything, for people.
func (s *server) report(lists status.Lists) status.Report {
	now := time.Now()
	sources := s.services.Snapshot().Sources
	_, on := s.translator.told()
	serving := s.proxier.Status()
	summary := s.translator.summary(serving)
	problems := sorted(s.translator.problems(), serving.Problems)
	r := status.Report{
		Version: version(), Time: now, Started: s.started, Uptime: now.Sub(s.started).Round(time.Second).String(),
		Redirect: s.redirect.way, Transparent: s.redirect.transparency != nil,
		Summary: summary,
		Failing: s.health().NotReady(),
		Node: status.Node{
			Name: on.Name, NodePortAddresses: on.NodePortAddresses, ListenAddresses: on.ListenAddrs,
		},
		Sources:  status.SourcesOf(sources, now),
		Status:   serving,
		Problems: status.ProblemsOf(problems),
	}
	r.Connections, r.ConnectionsOpen = s.proxier.Connections(lists.Connections)
	r.Flows, r.FlowsOpen = s.proxier.Flows(lists.Flows)
	s.addHits(&r)
	for _, a := range on.Primary {
		r.Node.Addresses = append(r.Node.Addresses, a)
	}
	slices.SortFunc(r.Node.Addresses, netip.Addr.Compare)
	return r
}

// addHits tells how often each portal's rule was met.
func (s *server) addHits(r *status.Report) {
	if r.Synced.IsZero() {
		return // there are no rules yet, and it is no fault that they cannot be read
	}
	h, at, err := s.hits.newest()
	if err != nil {
		r.Hits.Error = err.Error()
	}
	if err != nil || at.IsZero() {
		return
	}
	r.Hits.Read, r.Hits.Guarded, r.Hits.Barred = at, h.guarded, h.barred
	for i := range r.Ports {
		p := &r.Ports[i]
		protocol := service.Protocol(p.Name[strings.LastIndexByte(p.Name, '/')+1:])
		for j := range p.Portals {
			at := hitPortal{p.Portals[j].Addr, protocol}
			p.Portals[j].Hits = h.portals[at]
			if p.Portals[j].Outside != nil {
				p.Portals[j].Outside.Hits = h.outside[at]
			}
		}
	}
}
