//go:build linux && !portable

package nftables

import (
	"context"

	"github.com/userspace-proxy/userspace-proxy/internal/nfgen"
	"github.com/userspace-proxy/userspace-proxy/internal/watch"
)

// Watch looks after our tables until ctx ends, and then returns nil. When Check
// finds that somebody else has changed them, or cannot tell, it calls damaged
// with the error; the caller then makes somebody call Sync. Damaged is called
// by the goroutine of Watch, and nothing is checked before it returns.
//
// Each canary period Watch asks the kernel whether any rule of anybody has
// changed, which takes microseconds; if so, and each check period anyway, it
// compares all of ours.
func (r *Runner) Watch(ctx context.Context, damaged func(error)) error {
	return watch.Rules{
		Changed: r.changed, Check: r.Check, CanaryPeriod: r.config.CanaryPeriod, CheckPeriod: r.config.CheckPeriod,
	}.Watch(ctx, damaged)
}

// changed says whether anybody has changed any rule since ours were known to
// be as applied. It is true where that cannot be told.
func (r *Runner) changed() bool {
	now, err := nfgen.Read()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.applied != nil && (err != nil || now != r.clean)
}
