//go:build linux && !portable

package nftables

import (
	"context"
	"fmt"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// Counts reads what the kernel has counted. With 10,000 portals this takes
// half a second of nft's time, so callers ask now and then, not at every turn.
// Before the first Sync there is nothing to read, which is an error.
func (r *Runner) Counts(ctx context.Context) (Counts, error) {
	ctx, cancel := context.WithTimeout(ctx, r.config.Timeout)
	defer cancel()
	counts := Counts{Portals: make(map[Portal]uint64), Outside: make(map[Portal]uint64)}
	for _, f := range service.Families() {
		if _, served := r.config.Listen[f]; !served {
			continue
		}
		// The library lists elements without their counters.
		list, err := nft(ctx, "-j", "list", "table", wordsOf(f).nft, r.config.Table)
		if err == nil {
			err = readCounts(list, &counts)
		}
		if err != nil {
			return Counts{}, fmt.Errorf("reading nftables counters: %w", err)
		}
	}
	return counts, nil
}
