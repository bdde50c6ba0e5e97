//go:build !linux

package takeover

import (
	"context"
	"errors"
)

// ErrUnsupported says that only Linux has names that end with their process.
var ErrUnsupported = errors.New("taking over is for Linux")

// Hold is a name that this process has.
type Hold struct{}

// Take returns ErrUnsupported.
func Take(string) (*Hold, error) { return nil, ErrUnsupported }

// TakeOver returns ErrUnsupported.
func TakeOver(context.Context, string) (*Hold, *Predecessor, error) { return nil, nil, ErrUnsupported }

// Serving does nothing.
func (*Hold) Serving() {}

// Successor waits for ctx.
func (*Hold) Successor(ctx context.Context) (*Successor, error) {
	<-ctx.Done()
	return nil, nil //nolint:nilnil // nobody came, and that is no error
}

// Successor is a process that has asked to take over.
type Successor struct{ Peer }

// Yield returns ErrUnsupported.
func (*Successor) Yield(any) error { return ErrUnsupported }

// Regain returns ErrUnsupported.
func (*Successor) Regain(context.Context) error { return ErrUnsupported }

// Release does nothing.
func (*Hold) Release() {}
