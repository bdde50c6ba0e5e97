//go:build !linux

package listenaddr

import (
	"errors"
	"net/netip"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// Ensure fails: addresses of one's own on lo are for rules, which are for Linux.
func Ensure(map[service.Family]netip.Addr) (Result, error) {
	return Result{}, errors.New("listening addresses on lo are for Linux: use --redirect=none")
}

// Check finds nothing: there are none.
func Check(map[service.Family]netip.Addr) error { return nil }

// Remove does nothing: there are none.
func Remove(map[service.Family]netip.Addr) error { return nil }
