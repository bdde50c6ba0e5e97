package main

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/userspace-proxy/userspace-proxy/internal/status"
)

// health is for probes. Before every source has delivered, or its time is
// over, nothing is promised.
func (s *server) health() status.Health {
	synced, _, err := s.proxier.InForce()
	updated, waiting := s.translator.since()
	h := status.Health{Draining: s.stopping.Load(), Updated: synced}
	switch {
	case updated.IsZero():
		h.Failing = "waiting for the first full state of every source"
	case err != nil:
		h.Failing = "cannot reconcile: " + err.Error()
	case synced.IsZero():
		h.Failing = "the first reconcile is not done"
	case !waiting.IsZero() && time.Since(waiting) > 2*s.options.syncPeriod:
		h.Failing = fmt.Sprintf("what is to be served has not been done since %v", waiting.Format(time.RFC3339))
	}
	return h
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
		Failing:  s.health().Failing,
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
