package loadbalancer_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/loadbalancer"
)

// model is a group in the plainest words: one list that is searched for who
// was picked longest ago, and a map whose entries are removed when they end.
type model struct {
	now     time.Time
	turn    int
	members []*member
	timeout time.Duration
	clients map[netip.Addr]*entry
}

type member struct {
	n        int
	turn     int // number of the pick, or of the join, that it had last
	failures int
	backoff  time.Duration
	until    time.Time
	trial    bool
}

type entry struct {
	member *member
	used   time.Time
}

func (m *model) member(n int) *member {
	for _, e := range m.members {
		if e.n == n {
			return e
		}
	}
	return nil
}

// expire removes the entries that are over.
func (m *model) expire() {
	for client, e := range m.clients {
		if m.now.Sub(e.used) >= m.timeout || !slices.Contains(m.members, e.member) {
			delete(m.clients, client)
		}
	}
}

func (m *model) update(ns []int, timeout time.Duration) {
	m.expire()
	members := make([]*member, 0, len(ns))
	for _, n := range ns {
		e := m.member(n)
		if e == nil {
			m.turn++
			e = &member{n: n, turn: m.turn}
		}
		members = append(members, e)
	}
	m.members, m.timeout = members, timeout
	m.expire()
}

// pick is the number of the endpoint picked; -1 where there is none.
func (m *model) pick(client netip.Addr, tried []int) int {
	m.expire()
	var mine *member
	if e := m.clients[client]; e != nil {
		mine = e.member
	}
	var best *member
	better := func(e *member) bool {
		awake := func(e *member) bool { return !m.now.Before(e.until) || e == mine && e.trial }
		switch {
		case best == nil:
			return true
		case awake(e) != awake(best):
			return awake(e)
		case best == mine || e == mine:
			return e == mine
		}
		return e.turn < best.turn
	}
	for _, e := range m.members {
		if !slices.Contains(tried, e.n) && better(e) {
			best = e
		}
	}
	if best == nil {
		return -1
	}
	if best != mine {
		m.turn++
		best.turn = m.turn
	}
	if best.failures > 0 && !m.now.Before(best.until) {
		best.trial, best.until = true, m.now.Add(best.backoff)
	}
	m.use(client, best)
	return best.n
}

func (m *model) use(client netip.Addr, e *member) {
	if m.timeout > 0 && client.IsValid() {
		m.clients[client] = &entry{e, m.now}
	}
}

func (m *model) succeeded(client netip.Addr, n int) {
	if e := m.member(n); e != nil {
		m.expire()
		*e = member{n: n, turn: e.turn}
		m.use(client, e)
	}
}

func (m *model) failed(n int) {
	e := m.member(n)
	if e == nil {
		return
	}
	e.failures++
	if m.now.Before(e.until) && !e.trial {
		return
	}
	e.backoff = min(max(time.Second, 2*e.backoff), 30*time.Second)
	e.trial, e.until = false, m.now.Add(e.backoff)
}

func (m *model) status() []loadbalancer.EndpointStatus {
	all := make([]loadbalancer.EndpointStatus, 0, len(m.members))
	for _, e := range m.members {
		s := loadbalancer.EndpointStatus{Endpoint: endpoints(e.n)[0], Failures: e.failures}
		if m.now.Before(e.until) {
			s.RestingUntil, s.OnTrial = e.until, e.trial
		}
		all = append(all, s)
	}
	return all
}

// bits are the numbers of the bits set in b, of the lowest count.
func bits(b byte, count int) []int {
	var all []int
	for n := range count {
		if b&(1<<n) != 0 {
			all = append(all, n)
		}
	}
	return all
}

// FuzzGroup does to a group and to the model what the bytes say, three bytes a
// step, and compares every answer.
func FuzzGroup(f *testing.F) {
	const update, pick, succeed, fail, wait, exhaust = 0, 1, 2, 3, 4, 5
	f.Add([]byte{update, 0b111, 0, pick, 0, 0, pick, 0, 0, update, 0b1011, 0, pick, 0, 0, pick, 0, 0})
	f.Add([]byte{update, 0b11, 3, pick, 0, 0, fail, 0, 0, pick, 0, 1, succeed, 0, 1, wait, 2, 0, pick, 0, 0})
	f.Add([]byte{update, 0b11, 0, fail, 0, 0, wait, 2, 0, pick, 0, 0, pick, 0, 0, fail, 0, 0, wait, 3, 0, pick, 0, 0})
	f.Add([]byte{update, 0b111, 2, pick, 1, 0, wait, 4, 0, update, 0b111, 3, pick, 1, 0, update, 0, 3, update, 1, 3, pick, 1, 0})

	f.Add([]byte{update, 0b1111, 3, fail, 2, 0, exhaust, 0, 0, fail, 0, 0, exhaust, 0, 0, wait, 2, 0, exhaust, 0, 0, exhaust, 4, 0})
	f.Add([]byte{update, 0b11, 3, pick, 0, 0, fail, 0, 0, fail, 1, 0, exhaust, 0, 0})

	timeouts := []time.Duration{0, time.Second, 10 * time.Second, time.Hour}
	waits := []time.Duration{0, time.Millisecond, time.Second, 2 * time.Second, 9 * time.Second, 31 * time.Second, time.Hour}
	clients := []netip.Addr{client(1), client(2), client(3), netip.MustParseAddr("::ffff:192.0.2.1"), {}}

	f.Fuzz(func(t *testing.T, steps []byte) {
		steps = steps[:min(len(steps), 3*500)] // longer walks find nothing new
		c := newClock()
		g := loadbalancer.NewGroup(c.now)
		m := &model{now: c.now(), clients: map[netip.Addr]*entry{}}

		for i := 0; i+2 < len(steps); i += 3 {
			op, a, b := steps[i]%6, steps[i+1], steps[i+2]
			from := clients[int(a)%len(clients)]
			switch op {
			case update:
				list, timeout := bits(a, 6), timeouts[int(b)%len(timeouts)]
				if b&0x80 != 0 {
					slices.Reverse(list)
				}
				g.Update(endpoints(list...), timeout)
				m.update(list, timeout)
			case pick:
				tried := bits(b, 6)
				want, got := m.pick(from.Unmap(), tried), -1
				if ep, ok := g.Pick(from, addrs(tried...)); ok {
					got = number(ep)
				}
				if want != got {
					t.Fatalf("step %d: pick of %v, tried %v: want %d, got %d", i/3, from, tried, want, got)
				}
			case exhaust: // each dial fails, and the forecast knew where the next would go
				forecast := g.Forecast(from)
				wantAffine := netip.AddrPort{}
				m.expire()
				if e := m.clients[from.Unmap()]; e != nil {
					wantAffine = addr(e.member.n)
					require.Equal(t, e.used, forecast.Used, "step %d", i/3)
				}
				require.Equal(t, wantAffine, forecast.Affine, "step %d", i/3)
				require.Equal(t, m.timeout, forecast.Timeout, "step %d", i/3)
				var tried []int
				for _, next := range forecast.Endpoints {
					ep, ok := g.Pick(from, addrs(tried...))
					if want := m.pick(from.Unmap(), tried); !ok || number(ep) != want || ep != next.Addr {
						t.Fatalf("step %d: %v tried %v: want %d, forecast %v, got %v", i/3, from, tried, want, next.Addr, ep)
					}
					tried = append(tried, number(ep))
				}
				_, more := g.Pick(from, addrs(tried...))
				require.False(t, more, "step %d", i/3)
			case succeed:
				g.Succeeded(from, addr(int(b)%6))
				m.succeeded(from.Unmap(), int(b)%6)
			case fail:
				g.Failed(addr(int(a) % 6))
				m.failed(int(a) % 6)
			case wait:
				d := waits[int(a)%len(waits)]
				c.advance(d)
				m.now = m.now.Add(d)
			}
			if want, got := m.status(), g.Status(); !slices.Equal(want, got) {
				require.Equal(t, want, got, "step %d", i/3)
			}
			m.expire()
			if n := g.AffinityEntries(); n < len(m.clients) || n > 3 {
				t.Fatalf("step %d: %d clients in memory, %d have affinity", i/3, n, len(m.clients))
			}
		}

		// Whatever happened, the memory of clients returns.
		for range 2 {
			c.advance(m.timeout)
			_ = g.AffinityEntries()
		}
		require.Zero(t, g.AffinityEntries())
	})
}
