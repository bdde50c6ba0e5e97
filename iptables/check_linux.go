//go:build linux && !portable

package iptables

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Check compares every rule of ours in the kernel with what was applied. Where
// one was lost or changed it returns an ErrDamaged that names the first of each
// family, and the next Sync replaces our chains in that family, as it does
// where they could not be compared. What was not applied yet is not damaged.
//
// How a command prints a rule depends on its version. So a chain must have as
// many rules as were written, and must be listed as it was by the first Check
// after that.
func (r *Runner) Check(ctx context.Context) error {
	var errs []error
	for _, f := range r.families {
		if err := r.checkFamily(ctx, f); err != nil {
			errs = append(errs, fmt.Errorf("checking iptables rules of %s: %w", f.tool.family, err))
		}
	}
	return errors.Join(errs...)
}

func (r *Runner) checkFamily(ctx context.Context, f *familyRules) error {
	r.mu.Lock()
	syncs, known := f.syncs, f.applied != nil
	r.mu.Unlock()
	if !known {
		return nil
	}
	now, unknown := f.tool.generation() // before the look: what changes during it shows afterwards
	found, err := f.tool.saveAll(ctx)   // takes a while, and a Sync need not wait
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.applied == nil || f.syncs != syncs {
		return nil // something was written meanwhile
	}
	if err != nil {
		f.forget()
		return err
	}
	if damage := f.damage(found); damage != "" {
		f.forget()
		return fmt.Errorf("%s: %w", damage, ErrDamaged)
	}
	for at := range f.applied {
		f.seen[at] = fingerprint(found[at.table].rules[at.chain])
	}
	f.clean = now
	if unknown != nil {
		f.clean = generation{} // so that Watch always looks
	}
	return nil
}

// damage says in what a listing differs from what was applied; empty where it
// does not.
func (f *familyRules) damage(found map[string]listing) string {
	for _, j := range f.jumps {
		if !found[j.table].has(j) {
			return fmt.Sprintf("the jump from %s to %s is gone", j.place, j.to)
		}
	}
	for _, table := range f.tool.tables {
		for _, r := range found[table].strayJumps(table, f.jumps) {
			return fmt.Sprintf("there is one jump too many from %s to %s", place{table, r.chain}, r.target())
		}
	}
	for _, at := range places(f.applied) {
		rules := found[at.table].rules[at.chain]
		if got, want := len(rules), len(f.applied[at]); got != want {
			return fmt.Sprintf("%s has %d rules instead of %d", at, got, want)
		}
		if !slices.Contains(found[at.table].chains, at.chain) {
			return fmt.Sprintf("%s is gone", at)
		}
		if before, known := f.seen[at]; known && before != fingerprint(rules) {
			return fmt.Sprintf("a rule in %s is another", at)
		}
	}
	return ""
}
