package main

import (
	"net/netip"
	"slices"
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
		Families: s.families(),
	}
	switch {
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
func (s *server) report() status.Report {
	now := time.Now()
	sources := s.services.Snapshot().Sources
	_, on := s.translator.told()
	serving := s.proxier.Status()
	problems := sorted(s.translator.problems(), serving.Problems)
	r := status.Report{
		Version: version(), Time: now, Started: s.started, Uptime: now.Sub(s.started).Round(time.Second).String(),
		Redirect: s.redirect.way,
		Summary:  s.translator.summary(),
		Failing:  s.health().NotReady(),
		Node: status.Node{
			Name: on.Name, NodePortAddresses: on.NodePortAddresses, ListenAddresses: on.ListenAddrs,
		},
		Sources:  status.SourcesOf(sources, now),
		Status:   serving,
		Problems: status.ProblemsOf(problems),
	}
	for _, a := range on.Primary {
		r.Node.Addresses = append(r.Node.Addresses, a)
	}
	slices.SortFunc(r.Node.Addresses, netip.Addr.Compare)
	return r
}
