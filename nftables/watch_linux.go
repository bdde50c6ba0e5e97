//go:build linux && !portable

package nftables

import (
	"context"
	"time"

	"github.com/userspace-proxy/userspace-proxy/internal/nfgen"
)

// Watch looks after our tables until ctx ends, and then returns nil. When Check
// finds that somebody else has changed them, or cannot tell, it calls damaged
// with the error; the caller then makes somebody call Sync. Damaged is called
// by the goroutine of Watch, and nothing is checked before it returns.
//
// Each canary period Watch asks the kernel whether any rule of anybody has
// changed, which takes microseconds; if so, and each check period anyway, it
// compares our tables. Where others change theirs all the time it spends a
// fifth of its time on that at most.
func (r *Runner) Watch(ctx context.Context, damaged func(error)) error {
	canary := time.NewTicker(r.config.CanaryPeriod)
	defer canary.Stop()
	full := time.NewTicker(r.config.CheckPeriod)
	defer full.Stop()
	var rest time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-canary.C:
			if time.Now().Before(rest) || !r.changed() {
				continue
			}
		case <-full.C:
		}
		began := time.Now()
		if err := r.Check(ctx); err != nil && ctx.Err() == nil {
			damaged(err)
		}
		rest = time.Now().Add(4 * time.Since(began))
	}
}

// changed says whether anybody has changed any rule since ours were known to
// be as applied. It is true where that cannot be told.
func (r *Runner) changed() bool {
	now, err := nfgen.Read()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.applied != nil && (err != nil || now != r.clean)
}
