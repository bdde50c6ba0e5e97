//go:build !linux || portable

package nftables

import (
	"context"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// Runner cannot be made here: New returns ErrUnsupported.
type Runner struct{}

// New returns ErrUnsupported.
func New(Config) (*Runner, error) { return nil, ErrUnsupported }

// Sync returns ErrUnsupported.
func (*Runner) Sync(context.Context, []service.Redirect) error { return ErrUnsupported }

// Check returns ErrUnsupported.
func (*Runner) Check(context.Context) error { return ErrUnsupported }

// Watch returns ErrUnsupported.
func (*Runner) Watch(context.Context, func(error)) error { return ErrUnsupported }

// SetLocalPods does nothing.
func (*Runner) SetLocalPods(service.LocalPods) {}

// Forget does nothing.
func (*Runner) Forget() {}

// Counts returns ErrUnsupported.
func (*Runner) Counts(context.Context) (Counts, error) { return Counts{}, ErrUnsupported }

// KeptOut returns ErrUnsupported.
func (*Runner) KeptOut(context.Context) ([]service.Problem, error) { return nil, ErrUnsupported }

// Probe returns ErrUnsupported.
func Probe(context.Context, Config) (Report, error) { return Report{}, ErrUnsupported }

// Cleanup does nothing: there are no rules.
func Cleanup(context.Context) error { return nil }

// Bridges cannot be made here: NewBridges returns ErrUnsupported.
type Bridges struct{}

// NewBridges returns ErrUnsupported.
func NewBridges(context.Context, BridgesConfig) (*Bridges, error) { return nil, ErrUnsupported }

// Sync returns ErrUnsupported.
func (*Bridges) Sync(context.Context) error { return ErrUnsupported }

// Forget does nothing.
func (*Bridges) Forget() {}

// Check returns ErrUnsupported.
func (*Bridges) Check(context.Context) error { return ErrUnsupported }

// RemoveBridges does nothing: there is no table.
func RemoveBridges(context.Context) error { return nil }
