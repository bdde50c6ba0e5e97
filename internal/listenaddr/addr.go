package listenaddr

import (
	"errors"
	"net/netip"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// ErrNoRight says that the kernel lets this process change no addresses.
var ErrNoRight = errors.New("no right to change addresses: needs root or CAP_NET_ADMIN, or use --redirect=none")

// ErrDamaged says that an address that Ensure has made is gone.
var ErrDamaged = errors.New("somebody has removed it")

// Default are the listening addresses where none are chosen.
func Default() map[service.Family]netip.Addr {
	return map[service.Family]netip.Addr{
		service.IPv4: netip.AddrFrom4([4]byte{169, 254, 77, 1}),
		service.IPv6: netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x77, 15: 1}),
	}
}

// Result is what Ensure did.
type Result struct {
	// Listen are the addresses that are there now, by family.
	Listen map[service.Family]netip.Addr

	// Missing has a line for each family that the node lacks: why.
	Missing map[service.Family]string
}
