//go:build linux && !portable

package iptables

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// Runner keeps our chains in the kernel equal to the redirects that it is
// told. Its methods may be called by several goroutines at once.
type Runner struct {
	config   Config
	families []*familyRules // those that are served

	mu    sync.Mutex
	swept bool // what other runs may have left in what this Runner does not serve was removed, or tried to be
}

// New makes a Runner and changes nothing yet. It tells why the commands cannot
// be used (ErrNoIPTables). A family whose commands or tables are missing must
// not be in the configuration; Probe tells.
func New(c Config) (*Runner, error) {
	c = c.Defaults()
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("iptables configuration: %w", err)
	}
	r := &Runner{config: c}
	for _, f := range service.Families() {
		if _, served := c.Listen[f]; !served {
			continue
		}
		cmds, err := find(context.Background(), c, c.Kind, f)
		if err == nil {
			err = cmds.recent()
		}
		if err != nil {
			return nil, fmt.Errorf("trying iptables for %s: %w", f, err)
		}
		r.families = append(r.families, &familyRules{tool: cmds, jumps: c.jumps()})
	}
	return r, nil
}

// Sync makes the rules what the redirects ask for, with one iptables-restore
// for each family. Where the kernel's state is not known (the first time,
// after an error, after Forget) all our chains are replaced, otherwise those
// that differ are written, and if none does, nothing is run.
//
// Each table changes in one step. An error leaves the rules that were there
// last, in the family that it is of. Redirects that cannot be expressed are left
// out and the others are applied, since one odd Service must not hold up the
// rest; where nothing else is wrong the error is a service.LeftOutError.
func (r *Runner) Sync(ctx context.Context, redirects []service.Redirect) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	entries, leftOut := r.config.entries(redirects)
	var errs []error
	steps := 0
	for _, f := range r.families {
		n, err := f.sync(ctx, r.config.chains(f.tool.family, entries))
		if err != nil {
			errs = append(errs, fmt.Errorf("syncing iptables rules of %s: %w", f.tool.family, err))
		}
		steps += n
	}
	for _, f := range r.families { // the generation of nf_tables is that of all families
		f.clean = f.clean.after(steps)
	}
	if len(errs) == 0 && !r.swept {
		// What a run with the other kind, or with another family, left leads
		// to nobody; but ours must be there before it goes.
		r.swept = true
		if err := sweep(ctx, r.config, r.serves); err != nil {
			errs = append(errs, fmt.Errorf("removing what an earlier run left (not tried again; see cleanup): %w", err))
		}
	}
	if len(errs) == 0 && leftOut != nil {
		return &service.LeftOutError{Err: leftOut}
	}
	return errors.Join(append(errs, leftOut)...)
}

// SetLocalPods says how the traffic of pods on this node is told from others',
// instead of what the configuration or the call before said. It holds from the
// next Sync on.
func (r *Runner) SetLocalPods(l service.LocalPods) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.config.LocalPods = l
}

// Forget says that the kernel's state is no longer known. The next Sync replaces
// our chains, and removes again what a run with the other kind may have left.
func (r *Runner) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.swept = false
	for _, f := range r.families {
		f.forget()
	}
}

// serves says whether commands are for the same rules as some of this Runner.
func (r *Runner) serves(c *commands) bool {
	for _, f := range r.families {
		if f.tool.family == c.family && f.tool.legacy() == c.legacy() {
			return true
		}
	}
	return false
}

// familyRules are the rules of one family. The Runner's lock guards them.
type familyRules struct {
	tool    *commands
	jumps   []jump
	applied map[place][]string // what the kernel has; nil where that is not known
	seen    map[place]uint64   // how it lists our chains, those that were looked at since they were written
	syncs   int                // how often something was written
	clean   generation         // at this one the kernel had what was applied
}

func (f *familyRules) forget() { f.applied, f.seen, f.clean = nil, nil, generation{} }

// sync writes what differs, and says in how many steps, where that is known.
func (f *familyRules) sync(ctx context.Context, want map[place][]string) (int, error) {
	if f.applied == nil {
		return 0, f.replace(ctx, want)
	}
	in := change(f.applied, want)
	if in == "" {
		return 0, nil
	}
	f.syncs++
	if err := f.tool.restore(ctx, in); err != nil {
		// A run that was cut short may have come through or not.
		f.forget()
		return 0, err
	}
	maps.DeleteFunc(f.seen, func(at place, _ uint64) bool { return !slices.Equal(f.applied[at], want[at]) })
	f.applied = want
	return strings.Count(in, commit), nil
}

// replace writes everything, then the jumps that are missing.
func (f *familyRules) replace(ctx context.Context, want map[place][]string) error {
	found, err := f.tool.saveAll(ctx)
	if err == nil {
		err = f.tool.saveOthers(ctx, found) // of a run that had more
	}
	if err != nil {
		return err
	}
	f.syncs++
	if err := f.tool.restore(ctx, replace(want, found, f.jumps)); err != nil {
		return err
	}
	for _, j := range f.jumps {
		if found[j.table].has(j) {
			continue
		}
		if err := f.tool.InsertUnique(j.table, j.chain, 1, j.rule()...); err != nil {
			return fmt.Errorf("inserting the jump from %s to %s: %w", j.place, j.to, f.tool.explain(err))
		}
	}
	f.applied, f.seen = want, make(map[place]uint64)
	return nil
}
