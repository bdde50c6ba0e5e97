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

// NewBridges makes the table, unless it is there already: then it is left alone with
// the connections in it, which another process may still carry. The error says why it
// cannot be made, which is ErrNoBridges, or an error of New.
func NewBridges(ctx context.Context, c BridgesConfig) (*Bridges, error) {
	b := &Bridges{config: c}
	if err := b.Sync(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

// adopt finds out whether the table is there as Sync would make it, by making one
// of another name and comparing how nft prints both. Its caller holds mu.
func (b *Bridges) adopt(ctx context.Context) error {
	if err := makeBridges(ctx, renderBridges(b.config, bridgesTrial)); err != nil {
		return err
	}
	want, err := printedBridges(ctx, bridgesTrial)
	_, left := nft(ctx, "delete table bridge "+bridgesTrial)
	if err = errors.Join(err, left); err != nil {
		return fmt.Errorf("trying a table for bridges: %w", err)
	}
	clean := generation()
	if found, err := printedBridges(ctx, bridgesTable); err == nil && found == strings.ReplaceAll(want, bridgesTrial, bridgesTable) {
		b.seen, b.clean, b.applied = found, clean, true
	}
	return nil
}

// generation is that of the kernel's rules; 0 where it cannot be told.
func generation() uint32 {
	now, err := nfgen.Read()
	if err != nil {
		return 0
	}
	return now
}

// Forget says that it is not known any more whether the table is there.
func (b *Bridges) Forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.applied = false
}

func makeBridges(ctx context.Context, script string) error {
	_, err := nft(ctx, script)
	if err != nil && strings.Contains(err.Error(), "not supported") {
		err = fmt.Errorf("%w: %w", ErrNoBridges, err)
	}
	if err != nil {
		return fmt.Errorf("making the table for bridges: %w", err)
	}
	return nil
}

// Sync makes the table where it is not there. It does nothing where it is known to be.
func (b *Bridges) Sync(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.applied {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, Config{}.Defaults().Timeout)
	defer cancel()
	if err := b.adopt(ctx); err != nil || b.applied {
		return err
	}
	if err := makeBridges(ctx, RenderBridges(b.config)); err != nil {
		return err
	}
	clean := generation() // before it is read: what changes meanwhile shows at the next look
	printed, err := printedBridges(ctx, bridgesTable)
	if err != nil {
		return fmt.Errorf("reading the table for bridges: %w", err)
	}
	b.seen, b.clean, b.applied = printed, clean, true
	return nil
}

// printedBridges is how nft prints the table, but for what packets have added.
func printedBridges(ctx context.Context, name string) (string, error) {
	text, err := nft(ctx, "--terse", "--stateless", "list", "table", "bridge", name)
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
	frame, err := printedBridges(ctx, bridgesTable)
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
	err := removeTables(ctx, func(t foundTable) bool {
		return t.family == knftables.BridgeFamily && (t.name == bridgesTable || t.name == bridgesTrial)
	})
	if err != nil {
		return fmt.Errorf("removing the table for bridges: %w", err)
	}
	return nil
}
