//go:build !linux

package transparent

import "net/netip"

// MayDial returns ErrUnsupported.
func MayDial() error { return ErrUnsupported }

// Ensure returns ErrUnsupported.
func (Routing) Ensure() error { return ErrUnsupported }

// Check returns ErrUnsupported.
func (Routing) Check() error { return ErrUnsupported }

// Remove does nothing: there is nothing.
func Remove() error { return nil }

type routes struct{}

func openRoutes() (*routes, error) { return nil, ErrUnsupported }

func (*routes) close() {}

func (*routes) way(netip.Addr) Way { return Way{} }

func linksOf([]netip.Addr) map[string]bool { return nil }
