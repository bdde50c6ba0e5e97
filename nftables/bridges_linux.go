//go:build linux && !portable

package nftables

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"sigs.k8s.io/knftables"

	"github.com/userspace-proxy/userspace-proxy/internal/nfgen"
)

// Bridges keeps the table for bridges in the kernel. Its methods may be called by
// several goroutines at once.
type Bridges struct {
	config BridgesConfig

	mu      sync.Mutex
	applied bool
	clean   uint32 // at this generation the kernel had what was applied; 0: not known
	seen    string // how nft printed the table then
}

// NewBridges makes the table. The error says why it cannot be, which is
// ErrNoBridges, or an error of New.
func NewBridges(ctx context.Context, c BridgesConfig) (*Bridges, error) {
	b := &Bridges{config: c}
	if err := b.Sync(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

// Sync makes the table where it is not known to be there.
func (b *Bridges) Sync(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.applied {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, Config{}.Defaults().Timeout)
	defer cancel()
	if _, err := nft(ctx, RenderBridges(b.config)); err != nil {
		if strings.Contains(err.Error(), "not supported") {
			err = fmt.Errorf("%w: %w", ErrNoBridges, err)
		}
		return fmt.Errorf("making the table for bridges: %w", err)
	}
	now, unknown := nfgen.Read()
	var err error
	if b.seen, err = printedBridges(ctx); err != nil {
		return fmt.Errorf("reading the table for bridges: %w", err)
	}
	if b.clean = now; unknown != nil {
		b.clean = 0
	}
	b.applied = true
	return nil
}

// printedBridges is how nft prints the table, but for what packets have added.
func printedBridges(ctx context.Context) (string, error) {
	text, err := nft(ctx, "--terse", "--stateless", "list", "table", "bridge", bridgesTable)
	return readPrinted(string(text)).frame, err
}

// Check says whether the table is as it was made: an ErrDamaged where it is not.
// Then the next Sync makes it anew. It costs microseconds where nobody has changed
// any rule.
func (b *Bridges) Check(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, unknown := nfgen.Read()
	if !b.applied || unknown == nil && now == b.clean {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, Config{}.Defaults().Timeout)
	defer cancel()
	frame, err := printedBridges(ctx)
	switch {
	case err != nil && !strings.Contains(err.Error(), "No such file"):
		return fmt.Errorf("checking the table for bridges: %w", err)
	case err != nil, frame != b.seen:
		b.applied = false
		return fmt.Errorf("table bridge %s: %w", bridgesTable, ErrDamaged)
	}
	b.clean = now
	return nil
}

// RemoveBridges removes the table, where there is one.
func RemoveBridges(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, Config{}.Defaults().Timeout)
	defer cancel()
	tables, err := listTables(ctx)
	if errors.Is(err, ErrNoTables) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("removing the table for bridges: %w", err)
	}
	for _, t := range tables {
		if t.family == knftables.BridgeFamily && t.name == bridgesTable {
			if _, err := nft(ctx, "add table bridge "+bridgesTable+"; delete table bridge "+bridgesTable); err != nil {
				return fmt.Errorf("removing the table for bridges: %w", err)
			}
		}
	}
	return nil
}
