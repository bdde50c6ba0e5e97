//go:build linux && !portable

package nftables

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/knftables"
)

// Cleanup removes the tables that any version of this package may have made,
// in one transaction, and nothing else; but for that of Bridges, which is for
// iptables too and has RemoveBridges. Where there are none, or the kernel has
// no nf_tables, it does nothing. It ends within the default timeout, whatever
// nft does.
//
// Without an nft command it returns ErrNoNFT: rules in the kernel outlive the
// command that made them, and nobody can tell whether there are some.
func Cleanup(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, Config{}.Defaults().Timeout)
	defer cancel()
	tables, err := listTables(ctx)
	if errors.Is(err, ErrNoTables) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("removing nftables rules: %w", err)
	}
	var script strings.Builder
	for _, t := range tables {
		if ours(t.name) && t.family != knftables.BridgeFamily {
			// Added first, so that one that goes meanwhile is no error.
			fmt.Fprintf(&script, "add table %s %s; delete table %[1]s %[2]s;", t.family, t.name)
		}
	}
	if script.Len() == 0 {
		return nil
	}
	if _, err := nft(ctx, script.String()); err != nil {
		return fmt.Errorf("removing nftables rules: %w", err)
	}
	return nil
}
