package loadbalancer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/userspace-proxy/userspace-proxy/loadbalancer"
)

func TestPickWhy(t *testing.T) {
	t.Parallel()
	c := newClock()
	g := loadbalancer.NewGroup(c.now)
	why := func(tried ...int) loadbalancer.Why {
		_, why, ok := g.PickWhy(client(1), addrs(tried...))
		assert.True(t, ok)
		return why
	}
	_, _, ok := g.PickWhy(client(1), nil)
	assert.False(t, ok, "there is none")

	g.Update(endpoints(1, 2, 3), 0)
	assert.Equal(t, loadbalancer.ByTurn, why())
	assert.Equal(t, loadbalancer.ByTurn, why(1))

	g.Update(endpoints(1, 2, 3), time.Hour)
	first, reason, _ := g.PickWhy(client(1), nil)
	assert.Equal(t, loadbalancer.NewAffinity, reason)
	again, reason, _ := g.PickWhy(client(1), nil)
	assert.Equal(t, loadbalancer.ByAffinity, reason)
	assert.Equal(t, first, again)

	g.Failed(first)
	moved, reason, _ := g.PickWhy(client(1), nil)
	assert.Equal(t, loadbalancer.AffinityMoved, reason)
	assert.NotEqual(t, first, moved)

	g.Update(endpoints(1, 2, 3), 0)
	for n := range 3 {
		g.Failed(addr(n + 1))
	}
	assert.Equal(t, loadbalancer.AllRest, why())
	for w := loadbalancer.ByTurn; w <= loadbalancer.AllRest; w++ {
		assert.NotEmpty(t, w.String())
	}
}
