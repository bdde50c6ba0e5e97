package main

import (
	"context"
	"runtime"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/userspace-proxy/userspace-proxy/internal/metric"
	"github.com/userspace-proxy/userspace-proxy/proxy"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// addMetrics registers what the program as a whole counts. They are asked for
// when somebody looks, by which time all of the server is there.
func (s *server) addMetrics(set metric.Set) {
	build := set.AskedGauge(metric.Def{
		Name: "userspace_proxy_build_info", Help: "Always 1; its labels say which program this is.",
		Labels: []metric.Label{{Name: "version", Values: "of this program"}, {Name: "goversion", Values: "that it was built with"}},
	})
	problems := set.AskedGauge(metric.Def{
		Name:   "userspace_proxy_problems",
		Help:   "Things that keep the proxy from doing what an object asks, by reason; each is in /statusz with what to do.",
		Labels: []metric.Label{{Name: "reason", Values: "one word, such as `PortTaken`, `InvalidAddress`, `DescriptorsUsedUp`"}},
		Worry:  "It is above 0 for long: `userspace-proxy status problems` says what to do about each.",
	})
	barred := set.AskedCounter(metric.Def{
		Name:  "userspace_proxy_source_ranges_dropped_packets_total",
		Help:  "Packets to load balancer addresses that rules have dropped because loadBalancerSourceRanges does not let their sender in; with iptables their connections and flows. There while a Service has such ranges, anew from 0 when rules are made anew. With --redirect=none see userspace_proxy_tcp_connections_refused_total.",
		Worry: "It rises and clients complain: their addresses are missing in the ranges, or something on the way changes them.",
	})
	set.OnScrape(func(to chan<- prometheus.Metric) {
		if n, ok := s.barredPackets(); ok {
			to <- barred.Is(float64(n))
		}
		to <- build.Is(1, version(), runtime.Version())
		counts := make(map[string]int)
		for _, p := range sorted(s.translator.problems(), s.proxier.Problems()) {
			counts[p.Reason]++
		}
		for reason, n := range counts {
			to <- problems.Is(float64(n), reason)
		}
	})
	s.addSyncMetrics(set)
}

// barredPackets are those that rules have dropped because of source ranges. Where no
// Service has any, or there are no rules, nothing is read: it takes a command.
func (s *server) barredPackets() (n uint64, known bool) {
	resolution, _ := s.translator.told()
	limited := slices.ContainsFunc(resolution.Ports, func(p service.Port) bool { return p.Sources.Limited })
	if !limited || s.proxier.Progress().Synced.IsZero() {
		return 0, false
	}
	h, at, err := s.hits.newest()
	return h.barred, err == nil && !at.IsZero()
}

// addSyncMetrics registers those that kube-proxy has, under its names.
func (s *server) addSyncMetrics(set metric.Set) {
	asked := func(of func(metric.Def) metric.Asked, name, help, worry string) metric.Asked {
		return of(metric.Def{Name: "kubeproxy_" + name, Help: help, Worry: worry})
	}
	last := asked(set.AskedGauge, "sync_proxy_rules_last_timestamp_seconds", "When listeners and rules were last as wanted.", "")
	queued := asked(set.AskedGauge, "sync_proxy_rules_last_queued_timestamp_seconds", "When a change or a restoration was last asked for.",
		"It is ahead of `kubeproxy_sync_proxy_rules_last_timestamp_seconds`, and that is older than `--sync-period`: something hangs or fails.")
	const late = "It stays above 0: changes are not served."
	services := asked(set.AskedCounter, "sync_proxy_rules_service_changes_total", "Services that came, went or changed.", "")
	servicesPending := asked(set.AskedGauge, "sync_proxy_rules_service_changes_pending", "Services that came, went or changed, and are not served so yet.", late)
	endpoints := asked(set.AskedCounter, "sync_proxy_rules_endpoint_changes_total", "Services whose endpoints came, went or changed.", "")
	endpointsPending := asked(set.AskedGauge, "sync_proxy_rules_endpoint_changes_pending", "Services whose endpoints came, went or changed, and are not served so yet.", late)
	s.programming = set.Histogram(metric.Def{
		Name:    "kubeproxy_network_programming_duration_seconds",
		Help:    "Time from a change of a Pod or Service, as its EndpointSlice tells (annotation endpoints.kubernetes.io/last-change-trigger-time), until it is served here.",
		Buckets: programmingBuckets(),
		Worry:   "The 99th percentile is above some seconds: the control plane, the source or the reconciles are slow. The clocks of two machines are compared.",
	})
	set.OnScrape(func(to chan<- prometheus.Metric) {
		if done := s.proxier.Progress(); !done.Queued.IsZero() {
			to <- queued.Is(metric.Seconds(done.Queued))
			if !done.Synced.IsZero() {
				to <- last.Is(metric.Seconds(done.Synced))
			}
		}
		ofServices, ofEndpoints := s.translator.counted()
		to <- services.Is(float64(ofServices.total))
		to <- servicesPending.Is(float64(ofServices.pending))
		to <- endpoints.Is(float64(ofEndpoints.total))
		to <- endpointsPending.Is(float64(ofEndpoints.pending))
	})
}

// programmingBuckets are kube-proxy's: seconds to one minute, then coarser.
func programmingBuckets() []float64 {
	return slices.Concat(
		prometheus.LinearBuckets(0.25, 0.25, 2),
		prometheus.LinearBuckets(1, 1, 59),
		prometheus.LinearBuckets(60, 5, 12),
		prometheus.LinearBuckets(120, 30, 7),
	)
}

// countedRules are rules whose failures are counted under kube-proxy's name.
type countedRules struct {
	proxy.Rules
	failures prometheus.Counter
}

// Sync is part of proxy.Rules.
func (c countedRules) Sync(ctx context.Context, redirects []service.Redirect) error {
	err := c.Rules.Sync(ctx, redirects)
	if err != nil && ctx.Err() == nil {
		c.failures.Inc()
	}
	return err
}

// ruleFailures registers that counter for a kind of rules.
func ruleFailures(set metric.Set, way string) prometheus.Counter {
	d := metric.Def{
		Name:  "kubeproxy_sync_proxy_rules_nftables_sync_failures_total",
		Help:  "Transactions of nftables that failed, with --redirect=nftables.",
		Worry: "It rises: rules are not as wanted, the last good ones stay. The log has what nft says.",
	}
	if way == redirectIPTables {
		d.Name = "kubeproxy_sync_proxy_rules_iptables_restore_failures_total"
		d.Help = "Changes of rules by iptables-restore that failed, with --redirect=iptables."
		d.Worry = "It rises: rules are not as wanted, the last good ones stay. The log has what iptables-restore says."
	}
	return set.Counter(d)
}
