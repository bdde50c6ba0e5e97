//go:build linux && !portable

package nftables

import (
	"context"
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
	if err := b.adopt(ctx); err != nil {
		return nil, err
	}
	if err := b.Sync(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

// adopt finds out whether the table is there as Sync would make it, by making one
// of another name and comparing how nft prints both.
func (b *Bridges) adopt(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, Config{}.Defaults().Timeout)
	defer cancel()
	if err := makeBridges(ctx, renderBridges(b.config, bridgesTrial)); err != nil {
		return err
	}
	want, err := printedBridges(ctx, bridgesTrial)
	if err == nil {
		_, err = nft(ctx, "delete table bridge "+bridgesTrial)
	}
	if err != nil {
		return fmt.Errorf("trying a table for bridges: %w", err)
	}
	b.note(strings.ReplaceAll(want, bridgesTrial, bridgesTable))
	if found, err := printedBridges(ctx, bridgesTable); err != nil || found != b.seen {
		b.applied = false // it is not there, or is another
	}
	return nil
}

// note takes in that the table is there, and how nft prints it.
func (b *Bridges) note(printed string) {
	now, unknown := nfgen.Read()
	if b.clean = now; unknown != nil {
		b.clean = 0
	}
	b.seen, b.applied = printed, true
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

// Sync makes the table where it is not known to be there.
func (b *Bridges) Sync(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.applied {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, Config{}.Defaults().Timeout)
	defer cancel()
	if err := makeBridges(ctx, RenderBridges(b.config)); err != nil {
		return err
	}
	printed, err := printedBridges(ctx, bridgesTable)
	if err != nil {
		return fmt.Errorf("reading the table for bridges: %w", err)
	}
	b.note(printed)
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
