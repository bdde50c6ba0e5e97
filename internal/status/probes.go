package status

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/userspace-proxy/userspace-proxy/internal/metric"
)

// Probes counts what probes are answered, under kube-proxy's names.
type Probes struct{ healthz, livez *prometheus.CounterVec }

// NewProbes registers the counters.
func NewProbes(r prometheus.Registerer) *Probes {
	set := metric.On(r)
	code := []metric.Label{{Name: "code", Values: "`200`, `503`"}}
	return &Probes{
		healthz: set.Counters(metric.Def{
			Name: "kubeproxy_proxy_healthz_total", Help: "Answers of /healthz, by HTTP status.", Labels: code,
			Worry: "`503` rises: load balancers send clients elsewhere.",
		}),
		livez: set.Counters(metric.Def{
			Name: "kubeproxy_proxy_livez_total", Help: "Answers of /livez, by HTTP status.", Labels: code,
			Worry: "`503` rises: a kubelet will restart the proxy.",
		}),
	}
}

func (p *Probes) healthy(code int) {
	if p != nil {
		p.healthz.WithLabelValues(strconv.Itoa(code)).Inc()
	}
}

func (p *Probes) live(code int) {
	if p != nil {
		p.livez.WithLabelValues(strconv.Itoa(code)).Inc()
	}
}
