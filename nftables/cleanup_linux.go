//go:build linux && !portable

package nftables

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/knftables"
)

// Cleanup removes the tables that any version of this package may have made,
// in one transaction, and nothing else. Where there are none, or the kernel has
// no nf_tables, it does nothing.
//
// Without an nft command it returns ErrNoNFT: rules in the kernel outlive the
// command that made them, and nobody can tell whether there are some.
func Cleanup(ctx context.Context) error {
	tables, err := listTables(ctx)
	if errors.Is(err, ErrNoTables) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("removing nftables rules: %w", err)
	}
	tool, err := knftables.New("", "")
	if err != nil {
		return fmt.Errorf("removing nftables rules: %w", explainFirst(err))
	}
	tx := tool.NewTransaction()
	for _, t := range tables {
		if ours(t.name) {
			// Added first, so that one that goes meanwhile is no error.
			tx.Add(&knftables.Table{Family: t.family, Name: t.name})
			tx.Delete(&knftables.Table{Family: t.family, Name: t.name})
		}
	}
	if tx.NumOperations() == 0 {
		return nil
	}
	if err := tool.Run(ctx, tx); err != nil {
		return fmt.Errorf("removing nftables rules: %w", explainWithin(ctx, err))
	}
	return nil
}
