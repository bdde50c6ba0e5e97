//go:build linux && !portable

package nftables

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
)

// The table is made, is not looked at while nobody changes any rule, comes back
// when somebody has changed it, and is removed.
func TestTransparent_bridgesTable(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft")
	node := nettest.New(t).Node
	list := func() string { return node.Output(t, "nft", "--terse", "list", "ruleset") }
	node.Do(t, func() {
		b, err := NewBridges(t.Context(), BridgesConfig{Marks: 0xc000000, Idle: time.Minute})
		require.NoError(t, err)
		made := list()
		require.Contains(t, made, "table bridge userspace-proxy-bridges")
		require.NoError(t, b.Check(t.Context()))
		require.NoError(t, b.Sync(t.Context()))
		node.Output(t, "nft", "add", "table", "ip", "others")
		require.NoError(t, b.Check(t.Context()))
		node.Output(t, "nft", "delete", "table", "ip", "others")
		for _, damage := range []string{
			"delete table bridge userspace-proxy-bridges", "flush ruleset", "flush chain bridge userspace-proxy-bridges output",
			"add rule bridge userspace-proxy-bridges prerouting drop",
		} {
			node.Output(t, "nft", damage)
			require.ErrorIs(t, b.Check(t.Context()), ErrDamaged, damage)
			require.NoError(t, b.Check(t.Context()), "it is known")
			require.NoError(t, b.Sync(t.Context()))
			require.NoError(t, b.Check(t.Context()))
			require.Equal(t, made, list(), damage)
		}
		node.Output(t, "nft", "add table bridge userspace-proxy-bridges-trial") // of a run that was killed
		require.NoError(t, RemoveBridges(t.Context()))
		require.NoError(t, RemoveBridges(t.Context()), "twice")
		assert.Empty(t, list())

		_, err = NewBridges(t.Context(), BridgesConfig{Marks: 0xc000000, Idle: time.Minute})
		require.NoError(t, err)
		require.NoError(t, Cleanup(t.Context()))
		assert.Equal(t, made, list(), "it is not for nftables alone")
	})
}

// Another process that makes the same table leaves it alone, with the connections
// that are in it. One that is otherwise is replaced.
func TestTransparent_bridgesTableIsTakenOver(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft")
	node := nettest.New(t).Node
	const dial = "10.10.1.2 . tcp . 1234 . 10.10.2.2 . 80"
	node.Do(t, func() {
		c := BridgesConfig{Marks: 0xc000000, Idle: time.Minute}
		_, err := NewBridges(t.Context(), c)
		require.NoError(t, err)
		known := func() bool {
			return strings.Contains(node.Output(t, "nft", "list", "set", "bridge", "userspace-proxy-bridges", "dials_ip"), "10.10.1.2")
		}
		know := func() {
			node.Output(t, "nft", "add element bridge userspace-proxy-bridges dials_ip { "+dial+" timeout 1h }")
			require.True(t, known())
		}
		know()
		next, err := NewBridges(t.Context(), c)
		require.NoError(t, err)
		require.NoError(t, next.Check(t.Context()))
		assert.True(t, known())
		assert.NotContains(t, node.Output(t, "nft", "list", "tables"), "trial")

		for what, change := range map[string]func(){
			"damaged":     func() { node.Output(t, "nft", "add rule bridge userspace-proxy-bridges prerouting drop") },
			"other marks": func() { c.Marks = 0x3000000 },
			"other times": func() { c.Idle = time.Hour },
		} {
			_, err = NewBridges(t.Context(), c)
			require.NoError(t, err)
			know()
			change()
			next, err := NewBridges(t.Context(), c)
			require.NoError(t, err)
			assert.False(t, known(), what)
			require.NoError(t, next.Check(t.Context()))
		}
	})
}
