package proxy

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestBudgetLeavesSomethingToEverybody(t *testing.T) {
	t.Parallel()
	b := newBudget(900, 0) // 800 to share
	flows := newFlowBudget(b, 1<<20)
	n := 0
	for flows.tryAcquire() {
		n++
	}
	assert.Equal(t, 350, n, "UDP flows get half of what traffic may have")
	connections := 0
	for b.take(2) {
		connections++
	}
	assert.Equal(t, 175, connections)
	listeners := 0
	for b.takeListener() {
		listeners++
	}
	assert.Equal(t, 100, listeners, "an eighth is kept for listeners")
	for range n {
		flows.release()
	}
	b.give(2 * connections)
	for b.takeListener() {
		listeners++
	}
	assert.Equal(t, 600, listeners, "three quarters at most")
	assert.False(t, b.take(201))
	assert.True(t, b.take(200))
}

// What docs/benchmarks.md promises of idle connections.
func TestBudgetHoldsConnectionsWithinTwentyThousandDescriptors(t *testing.T) {
	t.Parallel()
	b := newBudget(20_000, 36) // two loops
	for range 20 {
		assert.True(t, b.takeListener())
	}
	for range 9500 {
		assert.True(t, b.take(2))
	}
	assert.False(t, b.status().UsedUp())
	for range 800 {
		assert.True(t, b.takeListener(), "room is kept for Services to come")
	}
}

func TestFlowsHaveALimitOfTheirOwn(t *testing.T) {
	t.Parallel()
	flows := newFlowBudget(newBudget(10_000, 0), 3)
	for range 3 {
		assert.True(t, flows.tryAcquire())
	}
	assert.False(t, flows.tryAcquire())
	flows.release()
	assert.True(t, flows.tryAcquire())
}
