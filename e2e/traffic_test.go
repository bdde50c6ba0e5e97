package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
)

// steady is a Service that is left alone while everything else changes.
func steady(endpoints map[string][]string) object {
	o := changing(endpoints)
	o.name, o.clusterIPs = "steady", []string{"10.96.0.200", "fd96::200"}
	for i := range o.ports {
		o.ports[i].nodePort = 0
	}
	return o
}

// traffic is clients that ask a Service one time after the other.
type traffic struct {
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu    sync.Mutex
	asked int
	wrong []string
}

// ask begins to ask at the targets, from a host, until end is called.
func ask(t *testing.T, from *nettest.Host, want string, targets ...target) *traffic {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	tr := &traffic{cancel: cancel}
	t.Cleanup(func() { tr.cancel(); tr.all.Wait() })
	for _, to := range targets {
		tr.all.Go(func() {
			for ctx.Err() == nil {
				got, err := answer(ctx, from, to)
				if ctx.Err() == nil {
					tr.note(to, got, want, err)
				}
				select {
				case <-ctx.Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
		})
	}
	return tr
}

func (tr *traffic) note(to target, got, want string, err error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.asked++
	if (err != nil || got != want) && len(tr.wrong) < 10 {
		tr.wrong = append(tr.wrong, fmt.Sprintf("%v, request %d: got %q, %v", to, tr.asked, got, err))
	}
}

// end ends the traffic and asserts that every request was answered.
func (tr *traffic) end(t *testing.T) {
	t.Helper()
	tr.cancel()
	tr.all.Wait()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	assert.NotZero(t, tr.asked)
	assert.Empty(t, tr.wrong, "of %d requests", tr.asked)
}

func steadyTargets() []target {
	return slices.Concat(targets("tcp", "10.96.0.200:80", "[fd96::200]:80"), targets("udp", "10.96.0.200:80", "[fd96::200]:80"))
}

func targets(network string, addresses ...string) []target {
	var all []target
	for _, a := range addresses {
		all = append(all, target{network, a})
	}
	return all
}
