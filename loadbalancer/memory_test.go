package loadbalancer_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/loadbalancer"
)

// A group in another process goes on with the clients that this one has.
func TestMemories_goOnElsewhere(t *testing.T) {
	t.Parallel()
	g, c := newGroup(time.Minute, 1, 2, 3)
	before := map[int]int{}
	for n := range 6 {
		before[n] = mustPick(t, g, client(n))
		c.advance(time.Second)
	}
	c.advance(50 * time.Second)
	var handed []loadbalancer.Memory
	text, err := json.Marshal(g.Memories())
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &handed))
	require.Len(t, handed, 6)

	next := loadbalancer.NewGroup(c.now)
	next.Update(endpoints(2, 3, 1), time.Minute) // whose turns are others
	next.Recall(handed)
	for n := range 6 {
		assert.Equal(t, before[n], mustPick(t, next, client(n)), "client %d", n)
	}
	assert.Equal(t, 6, next.AffinityEntries())
}

func TestRecall_takesInWhatCounts(t *testing.T) {
	t.Parallel()
	one, c := newGroup(time.Minute, 1, 2)
	require.Equal(t, 1, mustPick(t, one, client(1)))
	require.Equal(t, 2, mustPick(t, one, client(2)))
	handed := one.Memories()

	recall := func(timeout time.Duration, numbers ...int) *loadbalancer.Group {
		g := loadbalancer.NewGroup(c.now)
		g.Update(endpoints(numbers...), timeout)
		g.Recall(handed)
		return g
	}
	assert.Equal(t, 1, recall(time.Minute, 3, 1).AffinityEntries(), "an endpoint that is not there")
	assert.Zero(t, recall(0, 1, 2).AffinityEntries(), "no affinity")

	known := loadbalancer.NewGroup(c.now)
	known.Update(endpoints(2, 1), time.Minute)
	require.Equal(t, 2, mustPick(t, known, client(1)))
	known.Recall(handed)
	assert.Equal(t, 2, mustPick(t, known, client(1)), "what is known here counts")

	late := recall(time.Minute, 2, 1)
	c.advance(time.Minute)
	assert.Equal(t, 2, mustPick(t, late, client(1)), "over, as if it had been here all the time")
	assert.Empty(t, one.Memories(), "what is over is not handed over")

	future := loadbalancer.NewGroup(func() time.Time { return c.now().Add(-time.Hour) })
	future.Update(endpoints(1, 2), time.Minute)
	future.Recall(handed)
	assert.Zero(t, future.AffinityEntries(), "a clock that was set back would keep it for long")
}
