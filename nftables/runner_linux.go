//go:build linux && !portable

package nftables

import (
	"context"
	"fmt"
	"sync"

	"sigs.k8s.io/knftables"

	"github.com/userspace-proxy/userspace-proxy/internal/nfgen"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// Runner keeps our tables in the kernel equal to the redirects that it is
// told. Its methods may be called by several goroutines at once.
type Runner struct {
	config Config
	nft    knftables.Interface
	tables func(context.Context) ([]foundTable, error) // what tables there are

	mu      sync.Mutex
	applied map[key]element            // what the kernel has; nil where that is not known
	seen    map[service.Family]string  // how nft prints our tables but for their elements, once looked at
	syncs   int                        // how often something was written
	passed  map[service.Family]passage // what was counted when KeptOut was last called
	clean   uint32                     // at this generation the kernel had what was applied; 0: not known
}

// New makes a Runner and changes nothing yet. It tells why the nft command
// cannot be used (ErrNoNFT, ErrNoRight).
func New(c Config) (*Runner, error) {
	c = c.Defaults()
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("nftables configuration: %w", err)
	}
	nft, err := knftables.New("", "")
	if err != nil {
		return nil, fmt.Errorf("trying nft: %w", explainFirst(err))
	}
	return newRunner(c, nft, listTables), nil
}

func newRunner(c Config, nft knftables.Interface, tables func(context.Context) ([]foundTable, error)) *Runner {
	return &Runner{config: c, nft: nft, tables: tables, passed: make(map[service.Family]passage)}
}

// Sync makes the rules what the redirects ask for, in one transaction. Where
// the kernel's state is not known (the first time, after an error, after
// Forget) our tables are replaced as a whole, otherwise what differs is
// changed, and if nothing does, nothing is run.
//
// An error leaves the rules that were there last, unless it is a
// service.LeftOutError: redirects that cannot be expressed are left out and the
// others are applied, since one odd Service must not hold up the rest.
func (r *Runner) Sync(ctx context.Context, redirects []service.Redirect) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	want, leftOut := r.config.elements(redirects)
	ctx, cancel := context.WithTimeout(ctx, r.config.Timeout)
	defer cancel()

	tx, err := r.transaction(ctx, want)
	if err != nil {
		return fmt.Errorf("syncing nftables rules: %w", err)
	}
	if tx.NumOperations() > 0 {
		r.syncs++
		if err := r.nft.Run(ctx, tx); err != nil {
			// A run that was cut short may have come through or not.
			r.forget()
			return fmt.Errorf("syncing nftables rules: %w", explainWithin(ctx, err))
		}
		r.clean = nfgen.After(r.clean, 1)
	}
	r.applied = want
	if leftOut != nil {
		return &service.LeftOutError{Err: leftOut}
	}
	return nil
}

// SetLocalPods says how the traffic of pods on this node is told from others',
// instead of what the configuration or the call before said. It holds from the
// next Sync on.
func (r *Runner) SetLocalPods(l service.LocalPods) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.config.LocalPods.Interface != l.Interface { // it stands in rules, which only change as a whole
		r.forget()
	}
	r.config.LocalPods = l
}

// Forget says that the kernel's state is no longer known, say because somebody
// flushed the ruleset. The next Sync replaces our tables as a whole.
func (r *Runner) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget()
}

func (r *Runner) forget() { r.applied, r.seen, r.clean = nil, nil, 0 }

// transaction leads from what the kernel has to what it should have. When it
// replaces our tables it removes in the same step what an earlier run left in
// a family that is no longer served: its rules lead to nobody.
func (r *Runner) transaction(ctx context.Context, want map[key]element) (*knftables.Transaction, error) {
	tx := r.nft.NewTransaction()
	if r.applied != nil {
		fill(tx, r.config.change(r.applied, want))
		return tx, nil
	}
	found, err := r.tables(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range found {
		if t.name == r.config.Table && !r.serves(t.family) {
			tx.Delete(&knftables.Table{Family: t.family, Name: t.name})
		}
	}
	fill(tx, r.config.replace(want))
	return tx, nil
}

func (r *Runner) serves(f knftables.Family) bool {
	for family := range r.config.Listen {
		if wordsOf(family).nft == string(f) {
			return true
		}
	}
	return false
}
