package proxy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// ownDials knows the proxy's own connections to addresses of this host, so that
// one that comes in again is turned away: it would be carried to where it was
// sent before, and so on until descriptors have run out. config.Resolve refuses
// endpoints at which the proxy itself is; what is left is somebody else's rule
// that leads another address of the host to it.
//
// A dial that leaves the host is none of these: it costs one look at a table,
// and so does a client from elsewhere. What comes back through another machine,
// or a program that connects anew, cannot be told from any client, and is
// bounded by the limits alone.
type ownDials struct {
	here  atomic.Pointer[map[netip.Addr]bool] // addresses of this host, but for loopback
	known atomic.Int64                        // how many dials there are, those that are being added too

	mu sync.Mutex
	// dials are by their local end. The kernel gives one port to connections to
	// several destinations at once: to several dials, and to a dial and a client.
	dials map[netip.AddrPort][]*ownDial
	loops map[foundLoop]time.Time // when last met
}

// ownDial is a connection to an endpoint on this host.
type ownDial struct {
	foundLoop
	group    balancer
	local    netip.AddrPort // its own end
	cameBack bool           // it has come in at one of the proxy's listeners
}

// foundLoop is an endpoint of a service port that leads back to the proxy.
type foundLoop struct {
	key      service.Key
	endpoint netip.AddrPort
}

// mostLoops bounds how many are reported.
const mostLoops = 100

var errOwnDial = errors.New("it leads back to the proxy")

func newOwnDials() *ownDials {
	o := &ownDials{dials: make(map[netip.AddrPort][]*ownDial), loops: make(map[foundLoop]time.Time)}
	o.here.Store(&map[netip.Addr]bool{})
	return o
}

// look learns which addresses the host has now.
func (o *ownDials) look() {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return // those known before are the best there is
	}
	here := make(map[netip.Addr]bool, len(addrs))
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			if addr, ok := netip.AddrFromSlice(n.IP); ok {
				here[addr.Unmap()] = true
			}
		}
	}
	o.here.Store(&here)
}

// isHere says whether an address is this host's.
func (o *ownDials) isHere(a netip.Addr) bool {
	return a.IsLoopback() || (*o.here.Load())[a.WithZone("")]
}

// add makes a dial known, which is counted already. Its caller holds mu.
func (o *ownDials) add(local netip.AddrPort, d *ownDial) {
	d.local = local
	o.dials[local] = append(o.dials[local], d)
}

// remove is for a dial that is closed; nil is none of these.
func (o *ownDials) remove(d *ownDial) {
	if d == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	rest := slices.DeleteFunc(o.dials[d.local], func(other *ownDial) bool { return other == d })
	if o.dials[d.local] = rest; len(rest) == 0 {
		delete(o.dials, d.local)
	}
	o.known.Add(-1)
}

// hasComeBack says whether a dial has; nil has not.
func (o *ownDials) hasComeBack(d *ownDial) bool {
	if d == nil {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return d.cameBack
}

// turnsBack says whether a client is a dial of the proxy's own, and notes that
// it came back: it is to be turned away, and its endpoint to rest. called tells
// which address the client has called, for a client of this host may have the
// port of a dial, to another address. It is asked where that may be so.
func (o *ownDials) turnsBack(client netip.AddrPort, called func() netip.AddrPort) (is, first bool) {
	if o.known.Load() == 0 || !o.isHere(client.Addr()) {
		return false, false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	dials := o.dials[client]
	if len(dials) == 0 {
		return false, false
	}
	to := withoutZone(called())
	at := slices.IndexFunc(dials, func(d *ownDial) bool { return withoutZone(d.endpoint) == to })
	if at < 0 {
		return false, false
	}
	d := dials[at]
	d.cameBack = true
	d.group.Failed(d.endpoint)
	_, seen := o.loops[d.foundLoop]
	if !seen && len(o.loops) >= mostLoops {
		return true, false
	}
	o.loops[d.foundLoop] = time.Now()
	return true, !seen
}

// withoutZone is an address as rules know it.
func withoutZone(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// problems are the loops that were met, as long as they may be there.
func (o *ownDials) problems(served map[service.Key]service.Port) (problems []service.Problem) {
	const remembered = 10 * time.Minute
	o.mu.Lock()
	defer o.mu.Unlock()
	for l, met := range o.loops {
		if time.Since(met) > remembered || !hasEndpoint(served[l.key], l.endpoint) {
			delete(o.loops, l)
			continue
		}
		problems = append(problems, service.Problem{
			Object: "Service " + l.key.Namespace + "/" + l.key.Name,
			Reason: "EndpointLoop",
			Detail: fmt.Sprintf("endpoint %v of %s port %q leads back to the proxy: it is turned away there", l.endpoint, l.key.Protocol, l.key.Port),
			Advice: "a rule on this node leads that address to a Service: list the endpoints behind it instead",
		})
	}
	return problems
}

func hasEndpoint(p service.Port, addr netip.AddrPort) bool {
	for _, e := range p.Endpoints {
		if e.Addr == addr {
			return true
		}
	}
	return false
}
