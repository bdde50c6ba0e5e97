//go:build linux && !portable

package iptables

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/anyservices"
	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
)

// Of 10,000 Services by chance, valid and not, the kernel takes every rule; each
// portal leads from everywhere where the Service asks for, by the tracer and, for
// a sample, really; and all of it again when half of them change.
func TestSemantics_tenThousandServices(t *testing.T) {
	eachKind(t, func(t *testing.T, k Kind) {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		r := rand.New(rand.NewPCG(seed, 0))
		w := newWorld(t, k)
		listening := make(map[string]bool)
		for turn := range 2 {
			world := anyservices.New(seed, 10_000/(1+turn), w.config.Listen)
			w.runner.SetLocalPods(world.Pods)
			w.sync(t, world.Redirects)
			require.NoError(t, w.check(t))
			tr := w.inKernel(t)
			require.Greater(t, len(world.Frontends), 5_000)
			for n := range 3_000 {
				f := world.Frontends[r.IntN(len(world.Frontends))]
				from := []string{"client", "pod", "node"}[r.IntN(3)]
				packet, want := f.Packet(from), f.Meets(from)
				require.Equal(t, want, tr.trace(packet), "the rules say of %s to %s of %s", packet, f.Portal, f.Key)
				at, isLed := anyservices.Listener(want)
				if n >= 60 || want == nettest.Passes {
					continue
				}
				if isLed && !listening[at] {
					listening[at] = true
					w.listen(t, at)
				}
				assert.Equal(t, want, w.Send(t, packet, want), "really: %s to %s of %s", packet, f.Portal, f.Key)
			}
		}
	})
}
