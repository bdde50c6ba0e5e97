package etcd

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCase20_anyHistoryEndsAsAFreshStart: after random puts, deletes,
// compactions, lost connections, restarts and restores from a backup, a source
// that lived through them shows what one shows that starts afterwards.
func TestCase20_anyHistoryEndsAsAFreshStart(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 20))
			s := startServer(t)
			g := newGate(t, s.hostPort())
			f := s.source(through(g))
			h := history{server: s, gate: g, r: r}
			for range 150 {
				h.step()
			}
			g.open(s.hostPort())
			s.put("/registry/services/specs/default/"+"end", aService("end", "10.96.255.255"))
			f.recovers(t)
			fresh := s.source()
			fresh.recovers(t)
			require.Equal(t, fresh.view(), f.view(), "seed %d: %v", seed, f.messages())
			got, want := f.services.Snapshot(), fresh.services.Snapshot()
			require.Equal(t, want.Services, got.Services)
			require.Equal(t, want.Endpoints, got.Endpoints)
		})
	}
}

// history makes things happen to a server.
type history struct {
	*server
	gate   *gate
	r      *rand.Rand
	backup string
	moment int
}

func (h *history) step() {
	name := fmt.Sprintf("web-%d", h.r.IntN(6))
	address := fmt.Sprintf("10.96.%d.%d", h.moment>>8, h.moment&255)
	h.moment++
	switch n := h.r.IntN(100); {
	case n < 30:
		h.put(serviceKey(name), aService(name, address))
	case n < 50:
		h.put(sliceKey(name+"-x"), aSlice(name+"-x", name, address))
	case n < 60:
		h.put(endpointsKey(name), someEndpoints(name, address))
	case n < 70:
		h.remove(serviceKey(name))
	case n < 80:
		h.remove(sliceKey(name + "-x"))
	case n < 85:
		h.remove(endpointsKey(name))
	case n < 88:
		h.put(serviceKey(name), "k8s:enc:")
		h.remove(serviceKey(name)) // or its last good state would be known here alone
	case n < 92:
		h.compact(h.put(sliceKey(name+"-x"), aSlice(name+"-x", name, address)))
	case n < 95:
		h.gate.close()
	case n < 97:
		h.gate.open(h.hostPort())
	case n < 98:
		h.kill()
		h.start()
	case n < 99:
		h.kill()
		h.backup = h.copyOf(h.dir)
		h.start()
	case h.backup != "":
		h.kill()
		h.dir = h.copyOf(h.backup)
		h.start()
	}
	if h.r.IntN(4) == 0 {
		time.Sleep(time.Duration(h.r.IntN(30)) * time.Millisecond) // some changes arrive one by one
	}
}
