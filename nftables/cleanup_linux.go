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
	err := removeTables(ctx, func(t foundTable) bool { return ours(t.name) && t.family != knftables.BridgeFamily })
	if err != nil {
		return fmt.Errorf("removing nftables rules: %w", err)
	}
	return nil
}

// removeTables removes the tables that are meant, in one transaction.
func removeTables(ctx context.Context, meant func(foundTable) bool) error {
	ctx, cancel := context.WithTimeout(ctx, Config{}.Defaults().Timeout)
	defer cancel()
	tables, err := listTables(ctx)
	if errors.Is(err, ErrNoTables) {
		return nil
	}
	if err != nil {
		return err
	}
	var script strings.Builder
	for _, t := range tables {
		if meant(t) {
			// Added first, so that one that goes meanwhile is no error.
			fmt.Fprintf(&script, "add table %s %s; delete table %[1]s %[2]s;", t.family, t.name)
		}
	}
	if script.Len() == 0 {
		return nil
	}
	_, err = nft(ctx, script.String())
	return err
}
