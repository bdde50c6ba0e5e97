//go:build !linux

package conntrack

import (
	"net/netip"
	"time"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// DeleteUDP returns ErrUnsupported.
func (Table) DeleteUDP(service.Family, func(from netip.Addr, to, ledTo netip.AddrPort) bool) (int, error) {
	return 0, ErrUnsupported
}

// UDPTimeouts returns ErrUnsupported.
func (Table) UDPTimeouts() (unanswered, answered time.Duration, err error) {
	return 0, 0, ErrUnsupported
}
