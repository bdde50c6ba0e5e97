package proxy

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// socketPlace is what a port number is unique in.
type socketPlace struct {
	family   service.Family
	protocol service.Protocol
}

// portRange hands out listener ports in turn, so that a port that was given
// back is used again as late as can be: packets for its last owner may still
// be on their way.
type portRange struct {
	PortRange
	next    map[socketPlace]int             // offset of the next to try
	resting map[socketPlace]map[uint16]bool // not to be handed out: traffic for their last owner may still be led there
}

func newPortRange(r PortRange) *portRange {
	return &portRange{PortRange: r, next: make(map[socketPlace]int), resting: make(map[socketPlace]map[uint16]bool)}
}

// rest keeps a port from being handed out until wake.
func (r *portRange) rest(at socketPlace, port uint16) {
	if r.resting[at] == nil {
		r.resting[at] = make(map[uint16]bool)
	}
	r.resting[at][port] = true
}

func (r *portRange) hasResting(at socketPlace) bool { return len(r.resting[at]) > 0 }

// wake lets all ports of a place be handed out again.
func (r *portRange) wake(at socketPlace) { delete(r.resting, at) }

// open calls try with one port after another until one is not in use.
func (r *portRange) open(place socketPlace, addr netip.Addr, try func(netip.AddrPort) error) error {
	size := int(r.Last) - int(r.First) + 1
	for range size {
		port := r.First + uint16(r.next[place]%size) // below Last, a uint16
		r.next[place]++
		if r.resting[place][port] {
			continue
		}
		err := try(netip.AddrPortFrom(addr, port))
		if !errors.Is(err, syscall.EADDRINUSE) {
			return err
		}
	}
	return fmt.Errorf("every %s port of %v in %d-%d is in use, or was a moment ago", place.protocol, addr, r.First, r.Last)
}
