package proxy

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

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
	service.PortRange
	next    map[socketPlace]int                  // offset of the next to try
	full    map[socketPlace]bool                 // all were tried, and none was free
	resting map[socketPlace]map[uint16]time.Time // until when they are not to be handed out: traffic for their last owner may be led there
}

func newPortRange(r service.PortRange) *portRange {
	return &portRange{
		PortRange: r, next: make(map[socketPlace]int), full: make(map[socketPlace]bool),
		resting: make(map[socketPlace]map[uint16]time.Time),
	}
}

// rest keeps a port from being handed out until wake, or for some time: wake never
// comes where nobody can say what is led there.
func (r *portRange) rest(at socketPlace, port uint16, most time.Duration) {
	if r.resting[at] == nil {
		r.resting[at] = make(map[uint16]time.Time)
	}
	r.resting[at][port] = time.Now().Add(most)
}

func (r *portRange) hasResting(at socketPlace) bool { return len(r.resting[at]) > 0 }

// wake lets all ports of a place be handed out again.
func (r *portRange) wake(at socketPlace) { delete(r.resting, at) }

// again has ports tried where all were in use before.
func (r *portRange) again() { clear(r.full) }

// open calls try with one port after another until one is not in use. Where none
// is, it tries none before again is called: thousands of ports that look for one
// would each try them all.
func (r *portRange) open(place socketPlace, addr netip.Addr, try func(netip.AddrPort) error) error {
	size := r.Size()
	for i := 0; i < size && !r.full[place]; i++ {
		port := r.First + uint16(r.next[place]%size) // below Last, a uint16
		r.next[place]++
		if until, rests := r.resting[place][port]; rests {
			if time.Now().Before(until) {
				continue
			}
			delete(r.resting[place], port)
		}
		err := try(netip.AddrPortFrom(addr, port))
		if !errors.Is(err, syscall.EADDRINUSE) {
			return err
		}
	}
	r.full[place] = true
	return fmt.Errorf("every %s port of %v in %d-%d is in use, or was a moment ago: give a wider --proxy-port-range", place.protocol, addr, r.First, r.Last)
}
