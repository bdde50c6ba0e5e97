//go:build linux && !portable

package nftables

import (
	"context"
	"fmt"

	"sigs.k8s.io/knftables"

	"github.com/userspace-proxy/userspace-proxy/internal/nfgen"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// Check compares our tables in the kernel with what was applied. Where
// something was lost or changed it returns an ErrDamaged that names the first
// such thing, and the next Sync replaces our tables, as it does where they
// could not be compared. What was not applied yet is not damaged.
//
// How nft prints a rule depends on its version. So elements must be those that
// were written, chains must have as many rules, and all but elements must be
// printed as it was at the first Check after the tables were made.
func (r *Runner) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.config.Timeout)
	defer cancel()
	r.mu.Lock()
	syncs, known := r.syncs, r.applied != nil
	r.mu.Unlock()
	if !known {
		return nil
	}
	now, unknown := nfgen.Read() // before the look: what changes during it shows afterwards
	found, err := r.look(ctx)    // takes a while, and a Sync need not wait
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.applied == nil || r.syncs != syncs {
		return nil // something was written meanwhile
	}
	if err == nil {
		err = r.damage(found)
	}
	if err != nil {
		r.forget()
		return fmt.Errorf("checking nftables rules: %w", err)
	}
	r.seen = make(map[service.Family]string)
	for f, p := range found {
		r.seen[f] = p.frame
	}
	r.clean = now
	if unknown != nil {
		r.clean = 0 // so that Watch always looks
	}
	return nil
}

// look reads our tables, those that are there.
func (r *Runner) look(ctx context.Context) (map[service.Family]printed, error) {
	found := make(map[service.Family]printed)
	for _, f := range service.Families() {
		if _, served := r.config.Listen[f]; !served {
			continue
		}
		// Without counts, and with numbers for protocols: names depend on /etc/protocols.
		text, err := nft(ctx, "--stateless", "--numeric-protocol", "list", "table", wordsOf(f).nft, r.config.Table)
		if err == nil {
			found[f] = readPrinted(string(text))
			continue
		}
		there, whyNot := r.has(ctx, f)
		if whyNot != nil || there {
			return nil, err
		}
	}
	return found, nil
}

// has says whether there is our table of a family.
func (r *Runner) has(ctx context.Context, f service.Family) (bool, error) {
	tables, err := r.tables(ctx)
	for _, t := range tables {
		if t.family == knftables.Family(wordsOf(f).nft) && t.name == r.config.Table {
			return true, err
		}
	}
	return false, err
}

// damage says in what our tables differ from what was applied.
func (r *Runner) damage(found map[service.Family]printed) error {
	want := printedElements(r.applied)
	for _, f := range service.Families() {
		if _, served := r.config.Listen[f]; !served {
			continue
		}
		name := fmt.Sprintf("table %s %s", wordsOf(f).nft, r.config.Table)
		p, there := found[f]
		if !there {
			return fmt.Errorf("%s is gone: %w", name, ErrDamaged)
		}
		why := p.differsFrom(r.config.table(f), want[f])
		if before, known := r.seen[f]; why == "" && known && before != p.frame {
			why = "a rule, a chain or a map is another"
		}
		if why != "" {
			return fmt.Errorf("%s: %s: %w", name, why, ErrDamaged)
		}
	}
	return nil
}
