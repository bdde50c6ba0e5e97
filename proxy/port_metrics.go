package proxy

import (
	"net/netip"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/userspace-proxy/userspace-proxy/internal/metric"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// portMetrics show service ports to Prometheus, once there is a Proxier. All
// is asked for at a scrape, so that carrying a message costs nothing for them.
type portMetrics struct {
	atomic.Pointer[Proxier]

	opened, active, bytes                   metric.Asked // TCP
	flowsOpened, flowsActive                metric.Asked
	datagrams, datagramBytes                metric.Asked
	endpoints, rests, clients               metric.Asked
	toEndpoint, flowsToEndpoint, endpointUp metric.Asked // where they are asked for by --metrics-per-endpoint
}

func newPortMetrics(set metric.Set) *portMetrics {
	port := []metric.Label{
		{Name: "namespace", Values: "of the Service"}, {Name: "service", Values: "its name"},
		{Name: "port", Values: "name of its port; empty where it has but one, without a name"},
	}
	with := func(more ...metric.Label) []metric.Label { return append(port[:len(port):len(port)], more...) }
	direction := metric.Label{Name: "direction", Values: "`up`: from client to endpoint; `down`: back"}
	endpoint := metric.Label{Name: "endpoint", Values: "its address and port"}
	const noTraffic = " Of ports that have carried something."
	const byChoice = " Only with `--metrics-per-endpoint`."
	m := &portMetrics{
		opened: set.AskedCounter(metric.Def{
			Name: "userspace_proxy_tcp_connections_opened_total", Labels: port,
			Help:  "TCP connections that reached an endpoint." + noTraffic,
			Worry: "It stands still for a Service that should be busy.",
		}),
		active: set.AskedGauge(metric.Def{
			Name: "userspace_proxy_tcp_connections_active", Labels: port,
			Help:  "TCP connections that are relayed now." + noTraffic,
			Worry: "It grows and never falls: clients or endpoints leave connections open. `--tcp-idle-timeout` ends those without traffic.",
		}),
		bytes: set.AskedCounter(metric.Def{
			Name: "userspace_proxy_tcp_bytes_total", Labels: with(direction),
			Help: "Bytes relayed over TCP, those of open connections among them." + noTraffic,
		}),
		flowsOpened: set.AskedCounter(metric.Def{
			Name: "userspace_proxy_udp_flows_opened_total", Labels: port, Help: "UDP flows that were opened." + noTraffic,
		}),
		flowsActive: set.AskedGauge(metric.Def{
			Name: "userspace_proxy_udp_flows_active", Labels: port,
			Help:  "UDP flows that are open now." + noTraffic,
			Worry: "The sum stays at `--max-udp-flows`: each new client ends the flow that was used longest ago.",
		}),
		datagrams: set.AskedCounter(metric.Def{
			Name: "userspace_proxy_udp_datagrams_total", Labels: with(direction),
			Help:  "UDP datagrams sent on." + noTraffic,
			Worry: "`up` rises and `down` does not, where endpoints should answer.",
		}),
		datagramBytes: set.AskedCounter(metric.Def{
			Name: "userspace_proxy_udp_bytes_total", Labels: with(direction), Help: "Bytes of UDP datagrams sent on." + noTraffic,
		}),
		endpoints: set.AskedGauge(metric.Def{
			Name: "userspace_proxy_endpoints", Labels: with(metric.Label{
				Name: "state", Values: "`ready`: picked; `resting`: passed over after failed dials; `unused`: not ready, terminating or refused. The latter two only where there are some",
			}),
			Help:  "Endpoints of a service port, in both families.",
			Worry: "`ready` is 0: clients are refused. `resting` is above 0 for long: endpoints are listed as ready and do not answer.",
		}),
		rests: set.AskedCounter(metric.Def{
			Name: "userspace_proxy_endpoint_rests_total", Labels: port,
			Help:  "Times that an endpoint began to rest after a failed dial, where there were some.",
			Worry: "It rises for longer than a roll-out takes.",
		}),
		clients: set.AskedGauge(metric.Def{
			Name: "userspace_proxy_affinity_clients", Labels: port,
			Help:  "Clients whose endpoint is remembered, of ports with ClientIP affinity; 262,144 in each family at most.",
			Worry: "It comes near that: those longest unused are forgotten early.",
		}),
		toEndpoint: set.AskedGauge(metric.Def{
			Name: "userspace_proxy_endpoint_connections_active", Labels: with(endpoint), Help: "TCP connections to an endpoint." + byChoice,
		}),
		flowsToEndpoint: set.AskedGauge(metric.Def{
			Name: "userspace_proxy_endpoint_flows_active", Labels: with(endpoint), Help: "UDP flows to an endpoint." + byChoice,
		}),
		endpointUp: set.AskedGauge(metric.Def{
			Name: "userspace_proxy_endpoint_up", Labels: with(endpoint), Help: "1 while an endpoint is picked, 0 while it rests." + byChoice,
			Worry: "It is 0 for long.",
		}),
	}
	set.OnScrape(func(to chan<- prometheus.Metric) {
		if p := m.Load(); p != nil {
			m.sendTraffic(to, p.shared)
			m.sendEndpoints(to, p)
		}
	})
	return m
}

func (m *portMetrics) sendTraffic(to chan<- prometheus.Metric, s *shared) {
	list := s.accounts.list()
	bytes := s.tcp.bytes(list)
	for _, a := range list {
		ns, name, port := a.name.Namespace, a.name.Name, a.name.Port
		if n := a.opened.Load(); n > 0 {
			to <- m.opened.Is(float64(n), ns, name, port)
			to <- m.active.Is(float64(a.active.Load()), ns, name, port)
			to <- m.bytes.Is(float64(bytes[a].up), ns, name, port, "up")
			to <- m.bytes.Is(float64(bytes[a].down), ns, name, port, "down")
		}
		if n := a.flowsOpened.Load(); n > 0 {
			to <- m.flowsOpened.Is(float64(n), ns, name, port)
			to <- m.flowsActive.Is(float64(a.flowsActive.Load()), ns, name, port)
			for direction, t := range map[string]*traffic{"up": &a.asked, "down": &a.answered} {
				to <- m.datagrams.Is(float64(t.datagrams.Load()), ns, name, port, direction)
				to <- m.datagramBytes.Is(float64(t.bytes.Load()), ns, name, port, direction)
			}
		}
	}
}

// portSummary is what a service port has in both families.
type portSummary struct {
	ready, resting, unused, clients int
	rests                           uint64
	affinity                        bool
}

func (m *portMetrics) sendEndpoints(to chan<- prometheus.Metric, p *Proxier) {
	_, ports := p.overview()
	sums := make(map[service.PortName]*portSummary)
	for _, s := range ports {
		sum := sums[s.key.PortName]
		if sum == nil {
			sum = new(portSummary)
			sums[s.key.PortName] = sum
		}
		s.addTo(sum)
	}
	for n, sum := range sums {
		to <- m.endpoints.Is(float64(sum.ready), n.Namespace, n.Name, n.Port, "ready")
		if sum.resting > 0 {
			to <- m.endpoints.Is(float64(sum.resting), n.Namespace, n.Name, n.Port, "resting")
		}
		if sum.unused > 0 {
			to <- m.endpoints.Is(float64(sum.unused), n.Namespace, n.Name, n.Port, "unused")
		}
		if sum.rests > 0 {
			to <- m.rests.Is(float64(sum.rests), n.Namespace, n.Name, n.Port)
		}
		if sum.affinity {
			to <- m.clients.Is(float64(sum.clients), n.Namespace, n.Name, n.Port)
		}
	}
	if !p.config.MetricsPerEndpoint {
		return
	}
	counts := p.shared.tcp.count()
	for _, s := range ports {
		m.sendEach(to, s, counts[s.key])
	}
}

func (s *servicePort) addTo(sum *portSummary) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.group.Summary()
	sum.ready += g.Awake
	sum.resting += g.Resting
	sum.unused += len(s.spec.Unused)
	sum.rests += g.Rests
	sum.clients += g.Clients
	sum.affinity = sum.affinity || s.spec.Affinity > 0
}

// sendEach is for each endpoint.
func (m *portMetrics) sendEach(to chan<- prometheus.Metric, s *servicePort, connections map[netip.AddrPort]int) {
	n := s.key.PortName
	for _, e := range s.status(connections).Endpoints {
		labels := []string{n.Namespace, n.Name, n.Port, e.Addr.String()}
		up := 0.
		if e.Picked {
			up = 1
		}
		to <- m.endpointUp.Is(up, labels...)
		if s.key.Protocol == service.UDP {
			to <- m.flowsToEndpoint.Is(float64(e.Flows), labels...)
		} else {
			to <- m.toEndpoint.Is(float64(e.Connections), labels...)
		}
	}
}
