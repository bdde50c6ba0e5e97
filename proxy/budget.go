package proxy

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/userspace-proxy/userspace-proxy/internal/metric"
)

// spare is the number of descriptors left to everything that is neither a
// listener nor traffic, beside what the TCP engine keeps open: standard streams,
// pipes of commands, watches, and the connections of those who ask for health, for
// metrics or at health check ports, each of which may be 20 (mostConnections in
// internal/status and internal/healthport).
const spare = 100

// budget shares the process's descriptors out so that nobody can take them all:
// listeners may have three quarters, traffic what they leave but for some that
// are kept for listeners to come, and UDP flows half of that.
type budget struct {
	mu        sync.Mutex
	total     int
	listeners int
	traffic   int // of it flows
	flows     int
	freed     chan struct{} // closed when traffic next gives back; nil while nobody waits
}

// newBudget is of a process that may have limit descriptors, of which the engine
// keeps some open.
func newBudget(limit, engine int) *budget {
	return &budget{total: max(limit-spare-engine, limit/2)}
}

// takeListener takes one descriptor for a listening or held socket.
func (b *budget) takeListener() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listeners+1 > b.total*3/4 || b.listeners+b.traffic+1 > b.total {
		return false
	}
	b.listeners++
	return true
}

func (b *budget) giveListener() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listeners--
}

// take takes n descriptors for traffic, all or none.
func (b *budget) take(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.traffic+n > b.forTraffic() {
		return false
	}
	b.traffic += n
	return true
}

// forTraffic is how many traffic may have now.
func (b *budget) forTraffic() int { return forTraffic(b.total, b.listeners) }

// forTraffic keeps an eighth for listeners to come, and no more than a large
// cluster gains in a while: the rest would lie idle where there are many.
func forTraffic(total, listeners int) int {
	const most = 800
	toCome := min(total/8, most, total*3/4-listeners)
	return total - listeners - max(toCome, 0)
}

// takeFlow takes one descriptor for a UDP flow.
func (b *budget) takeFlow() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.flows+1 > b.forTraffic()/2 || b.traffic+1 > b.forTraffic() {
		return false
	}
	b.flows++
	b.traffic++
	return true
}

func (b *budget) giveFlow() {
	b.mu.Lock()
	b.flows--
	b.mu.Unlock()
	b.give(1)
}

func (b *budget) give(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.traffic -= n
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}

// BudgetStatus tells how many descriptors are in use, of how many.
type BudgetStatus struct {
	Total     int `json:"total"`
	Listeners int `json:"listeners"`
	Traffic   int `json:"traffic"` // of connections and flows
	Flows     int `json:"flows"`   // of them of flows
}

// UsedUp says whether no new connection can be carried until another ends.
func (s BudgetStatus) UsedUp() bool {
	return s.Traffic+2 > forTraffic(s.Total, s.Listeners)
}

func (b *budget) status() BudgetStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	return BudgetStatus{Total: b.total, Listeners: b.listeners, Traffic: b.traffic, Flows: b.flows}
}

// budgetMetrics shows a budget to Prometheus, once there is one.
type budgetMetrics struct{ atomic.Pointer[budget] }

func newBudgetMetrics(set metric.Set) *budgetMetrics {
	m := new(budgetMetrics)
	total := set.AskedGauge(metric.Def{
		Name: "userspace_proxy_descriptors_budget",
		Help: "File descriptors that listeners, connections and flows share.",
	})
	used := set.AskedGauge(metric.Def{
		Name:   "userspace_proxy_descriptors_used",
		Help:   "File descriptors of the budget that are in use, by what for.",
		Labels: []metric.Label{{Name: "use", Values: "`listeners`: one for each Service port, three quarters at most; `connections`: two each; `flows`: one each"}},
		Worry:  "All together come near `userspace_proxy_descriptors_budget`: new clients will wait. Raise the limit on open files (`LimitNOFILE`, `ulimit -n`).",
	})
	set.OnScrape(func(to chan<- prometheus.Metric) {
		b := m.Load()
		if b == nil {
			return
		}
		st := b.status()
		to <- total.Is(float64(st.Total))
		to <- used.Is(float64(st.Listeners), "listeners")
		to <- used.Is(float64(st.Traffic-st.Flows), "connections")
		to <- used.Is(float64(st.Flows), "flows")
	})
	return m
}

// flowBudget is what UDP flows take from: one descriptor each, and no more of
// them than the limit on flows.
type flowBudget struct {
	*budget
	free atomic.Int64 // flows that may still be opened
}

func newFlowBudget(b *budget, flows int) *flowBudget {
	f := &flowBudget{budget: b}
	f.free.Store(int64(flows))
	return f
}

func (b *flowBudget) tryAcquire() bool {
	if b.free.Add(-1) < 0 || !b.takeFlow() {
		b.free.Add(1)
		return false
	}
	return true
}

func (b *flowBudget) release() {
	b.giveFlow()
	b.free.Add(1)
}
