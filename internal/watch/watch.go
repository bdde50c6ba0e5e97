package watch

import (
	"context"
	"time"
)

// Rules are rules to look after. Its functions are called by the goroutine of
// Watch, one at a time.
type Rules struct {
	// Changed says whether anybody has changed any rule since ours were known
	// to be as applied. It must cost next to nothing, and is true where that
	// cannot be told.
	Changed func() bool
	// Check compares all of our rules with what was applied. An error says in
	// what they differ, or why that cannot be told.
	Check func(context.Context) error

	CanaryPeriod time.Duration // between two calls of Changed
	CheckPeriod  time.Duration // after which Check is called in any case
}

// Watch looks after the rules until ctx ends, and then returns nil. When Check
// returns an error it calls damaged with that, and looks no further before
// damaged returns.
//
// Where others change their rules all the time it spends a fifth of its time on
// comparing ours at most.
func (r Rules) Watch(ctx context.Context, damaged func(error)) error {
	canary := time.NewTicker(r.CanaryPeriod)
	defer canary.Stop()
	full := time.NewTicker(r.CheckPeriod)
	defer full.Stop()
	var rest time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-canary.C:
			if time.Now().Before(rest) || !r.Changed() {
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
