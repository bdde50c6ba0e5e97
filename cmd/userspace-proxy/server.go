package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"

	"github.com/userspace-proxy/userspace-proxy/config"
	"github.com/userspace-proxy/userspace-proxy/config/apiserver"
	"github.com/userspace-proxy/userspace-proxy/internal/conntrack"
	"github.com/userspace-proxy/userspace-proxy/internal/events"
	"github.com/userspace-proxy/userspace-proxy/internal/healthport"
	"github.com/userspace-proxy/userspace-proxy/internal/listenaddr"
	"github.com/userspace-proxy/userspace-proxy/internal/metric"
	"github.com/userspace-proxy/userspace-proxy/internal/node"
	"github.com/userspace-proxy/userspace-proxy/internal/status"
	"github.com/userspace-proxy/userspace-proxy/internal/takeover"
	"github.com/userspace-proxy/userspace-proxy/internal/transparent"
	"github.com/userspace-proxy/userspace-proxy/internal/tuning"
	"github.com/userspace-proxy/userspace-proxy/internal/watch"
	"github.com/userspace-proxy/userspace-proxy/iptables"
	"github.com/userspace-proxy/userspace-proxy/nftables"
	"github.com/userspace-proxy/userspace-proxy/proxy"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// server is a proxy put together: sources -> ServiceConfig -> translator ->
// Proxier, and the window that shows them.
type server struct {
	options  *options
	log      logrus.FieldLogger
	started  time.Time
	stopping atomic.Bool
	api      *apiserver.Source           // nil: none
	events   *events.Recorder            // nil: nowhere
	apiNode  atomic.Pointer[corev1.Node] // this machine, as the API server has it; nil: it has not, or was not asked
	untuned  []tuning.SettingError       // settings of the node that cannot be made

	hold   *takeover.Hold // of this node; nil: nobody asks for it
	memory proxy.Memory   // of who served it before

	nodeWatch  *nodeWatch
	supervisor string // NOTIFY_SOCKET; empty: nobody wants to know

	metrics     *metric.Registry
	programming prometheus.Histogram // time from a change to its being served

	redirect   redirection
	hits       hitReader
	services   *config.ServiceConfig
	translator *translator
	proxier    *proxy.Proxier
	firewall   *firewall
	checks     *healthport.Server

	statusConfig status.Config
	status       *status.Server
}

// newServer puts a proxy together. Everything that can be wrong with files,
// addresses and rights shows here: first what costs nothing to find out, last
// what changes the machine. Whoever gets a server must run it.
func (m *Main) newServer(ctx context.Context, o *options, log logrus.FieldLogger) (*server, error) {
	s := &server{options: o, log: log, started: time.Now(), nodeWatch: newNodeWatch(o.nodeLacks(), log), supervisor: m.Getenv("NOTIFY_SOCKET")}
	facts, err := node.Read(o.nodeOptions())
	if err != nil {
		return nil, usage(err) // there is a flag for what cannot be found out
	}
	sources, err := m.sources(o, facts, log, s.onNode)
	if err != nil {
		return nil, err
	}
	m.takeSignals()
	if err := s.followAPI(sources, facts); err != nil {
		return nil, err
	}
	s.metrics = metric.NewRegistry()
	s.addMetrics(metric.On(s.metrics))
	s.metrics.MustRegister(
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(),
	)
	s.statusConfig = status.Config{
		HealthAddress: o.healthzAddress, MetricsAddress: o.metricsAddress,
		Health: s.health, Report: s.report, Explain: s.explain, Metrics: s.metrics, Probes: status.NewProbes(s.metrics),
		Names: []string{facts.Name}, Log: log, Profiling: o.profiling, Configuration: o.configuration(), HardFail: o.hardFail,
	}
	if err := s.takeNode(ctx); err != nil {
		s.release()
		return nil, err
	}
	if s.status, err = status.Listen(s.statusConfig); err != nil {
		s.release()
		return nil, err
	}
	if err := s.prepare(ctx, facts, sources); err != nil {
		s.status.Close()
		s.release()
		return nil, err
	}
	return s, nil
}

// prepare changes the machine where that is needed, and puts together what carries
// traffic.
func (s *server) prepare(ctx context.Context, facts node.Facts, sources []config.Source) (err error) {
	if s.redirect, err = s.options.chooseRedirect(ctx, facts, s.log); err != nil {
		return err
	}
	s.untuned = s.options.tuning.tune(s.api != nil, s.log)
	s.hits.read = s.redirect.hits
	return s.wire(sources)
}

// followAPI has Events written where one of the sources follows an API server.
func (s *server) followAPI(sources []config.Source, facts node.Facts) (err error) {
	for _, source := range sources {
		if api, ok := source.(*apiserver.Source); ok {
			s.api = api
			s.events, err = s.options.api.eventsOf(facts, s.log)
		}
	}
	return err
}

// wire puts together what carries traffic.
func (s *server) wire(sources []config.Source) error {
	c := s.options.proxyConfig()
	c.Log, c.Metrics = s.log, proxy.NewMetrics(s.metrics)
	c.Rules, c.Listen, c.Mark = s.redirect.rules, s.redirect.listen, s.redirect.mark
	c.Transparent = proxy.Transparent{ShowsClient: s.redirect.transparency.showsClient(), Mark: s.options.meant.replies}
	if c.Rules != nil {
		c.Conntrack = conntrack.Table{}
		c.Rules = countedRules{c.Rules, ruleFailures(metric.On(s.metrics), s.redirect.way)}
	}
	c.AfterSync = func() { s.translator.hasActed() } // which is there before the Proxier runs
	var err error
	if s.proxier, err = proxy.New(c); err != nil {
		return usage(err)
	}
	s.proxier.Recall(s.memory)
	budget := s.proxier.Status().Descriptors
	s.log.Infof("%d file descriptors to share: up to %d for listeners, the rest for connections and flows", budget.Total, budget.Total*3/4)

	s.services = config.New(s.log, config.Options{Grace: s.options.startupGrace})
	for _, source := range sources {
		s.services.Add(source)
	}
	s.firewall = &firewall{rules: s.redirect.guards, period: s.options.syncPeriod, log: s.log}
	s.checks = healthport.New(func() bool { return s.health().NotHealthy() == "" }, s.log)
	s.services.RegisterMetrics(s.metrics)
	s.translator = newTranslator(s)
	s.services.Register(config.ServiceKind|config.EndpointsKind, s.translator)
	return nil
}

// watchRules has rules restored, and what they need, that somebody else has
// changed, until ctx ends.
func (s *server) watchRules(ctx context.Context) error {
	if s.redirect.watch == nil {
		<-ctx.Done()
		return nil
	}
	damaged := func(err error) {
		changed := errors.Is(err, nftables.ErrDamaged) || errors.Is(err, iptables.ErrDamaged) || errors.Is(err, transparent.ErrDamaged) || errors.Is(err, listenaddr.ErrDamaged)
		if changed {
			s.log.WithError(err).Warn("rules are being restored")
		} else {
			s.log.WithError(err).Warn("rules cannot be checked, making them anew; until then those stand that are there")
		}
		s.proxier.Restore(changed)
	}
	watches := []actor{
		func(ctx context.Context) error { return s.redirect.watch.Watch(ctx, damaged) },
		func(ctx context.Context) error { return s.watchAddresses(ctx, damaged) },
	}
	if s.redirect.transparency != nil {
		watches = append(watches, func(ctx context.Context) error {
			return s.redirect.transparency.watch(ctx, s.options.syncPeriod, damaged)
		})
	}
	return together(ctx, watches...)
}

// watchAddresses looks once a second whether the listening addresses are there. One
// that is gone is made anew at once: new listeners need it before the rules do. Where
// that fails the same way again, the Proxier is trying already.
func (s *server) watchAddresses(ctx context.Context, damaged func(error)) error {
	last := ""
	return watch.Rules{
		Changed:      func() bool { return true },
		Check:        func(context.Context) error { return listenaddr.Check(s.redirect.own) },
		CanaryPeriod: time.Second, CheckPeriod: s.options.syncPeriod,
	}.Watch(ctx, func(err error) {
		_, failed := listenaddr.Ensure(s.redirect.own)
		why := ""
		if failed != nil {
			why = failed.Error()
		}
		if why == "" || why != last {
			damaged(errors.Join(err, failed))
		}
		last = why
	})
}

// nodeOptions say how to look at this machine.
func (o *options) nodeOptions() node.Options {
	return node.Options{
		Hostname: o.hostname,
		Prefer:   slices.Collect(maps.Values(o.meant.listen)),
		Own:      slices.Collect(maps.Values(o.ownAddresses())),
		Loopback: o.way() == redirectNone,
	}
}

// node is this machine as Resolve wants to know it. It is read anew each time:
// addresses come and go.
func (s *server) node() (config.Node, error) {
	look := s.options.nodeOptions()
	look.Prefer = append(look.Prefer, addrsOf(s.apiNode.Load())...)
	facts, err := node.Read(look)
	if err != nil {
		return config.Node{}, fmt.Errorf("looking at this node: %w", err)
	}
	n := s.options.nodeConfig(facts, s.redirect)
	n.Zone = zoneOf(s.apiNode.Load())
	n.LocalPods, n.LocalPodsUnknown = s.options.localPods(s.apiNode.Load())
	return n, nil
}

// know tells who decides from where endpoints are dialled, with --transparent.
func (s *server) know(on config.Node, ports []service.Port) {
	if t := s.redirect.transparency; t != nil {
		t.decider.Set(knownOf(on, s.apiNode.Load()), ports)
	}
}

// nodeConfig is what facts and flags come to.
func (o *options) nodeConfig(facts node.Facts, r redirection) config.Node {
	n := config.Node{
		Name:              facts.Name,
		Primary:           facts.Primary,
		Local:             facts.Local,
		NodePortAddresses: o.meant.nodePorts.Of(facts, slices.Collect(maps.Values(o.ownAddresses()))...),
		NoRedirect:        r.way == redirectNone,
		AllowExternalIPs:  o.allowExternalIPs,
		AllowLoopbackFrom: map[string]bool{sourceFile: o.allowLoopbackEndpoints},
	}
	n.LocalPods, n.LocalPodsUnknown = o.localPods(nil)
	if r.way == redirectNone {
		return n
	}
	n.PortRange = o.meant.ports
	n.Primary = map[service.Family]netip.Addr{}
	for f, addr := range r.listen {
		n.ListenAddrs = append(n.ListenAddrs, addr)
		if a, ok := facts.Primary[f]; ok {
			n.Primary[f] = a
		}
	}
	slices.SortFunc(n.ListenAddrs, netip.Addr.Compare)
	return n
}

// firstOf is the IPv4 address, else the IPv6 one, else none.
func firstOf(addrs map[service.Family]netip.Addr) netip.Addr {
	for _, f := range service.Families() {
		if a, ok := addrs[f]; ok {
			return a
		}
	}
	return netip.Addr{}
}
