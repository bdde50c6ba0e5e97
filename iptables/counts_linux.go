//go:build linux && !portable

package iptables

import (
	"context"
	"fmt"
)

// Counts reads what the kernel has counted. With 10,000 portals this takes a
// quarter of a second of iptables-save's time, so callers ask now and then, not
// at every turn. Before the first Sync there is nothing to read.
func (r *Runner) Counts(ctx context.Context) (Counts, error) {
	counts := Counts{Portals: make(map[Portal]uint64), Outside: make(map[Portal]uint64)}
	for _, rules := range r.families {
		found, err := rules.tool.saveAll(ctx, "-c")
		if err == nil {
			err = counts.count(found)
		}
		if err != nil {
			return Counts{}, fmt.Errorf("reading iptables counters: %w", err)
		}
	}
	return counts, nil
}
