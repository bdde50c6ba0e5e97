package nfgen

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
)

func TestMain(m *testing.M) {
	nettest.Isolate()
	goleak.VerifyTestMain(m)
}

// A transaction is one change, however much it does.
func TestReadTellsChanges(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft", "ip")
	node := nettest.New(t).Node
	read := func() (generation uint32) {
		node.Do(t, func() {
			var err error
			generation, err = Read()
			require.NoError(t, err)
		})
		return generation
	}
	before := read()
	assert.Equal(t, before, read())
	node.Output(t, "nft", "add table ip a; add table ip b; add chain ip b c")
	assert.Equal(t, After(before, 1), read())
	node.Output(t, "nft", "list", "ruleset")
	assert.Equal(t, After(before, 1), read())
	node.Output(t, "nft", "delete table ip a")
	assert.Equal(t, After(before, 2), read())
}

func TestAfter(t *testing.T) {
	t.Parallel()
	assert.Equal(t, uint32(0), After(0, 3))
	assert.Equal(t, uint32(7), After(7, 0))
	assert.Equal(t, uint32(9), After(7, 2))
	assert.Equal(t, uint32(2), After(math.MaxUint32, 2))
}
