package main

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/userspace-proxy/userspace-proxy/iptables"
	"github.com/userspace-proxy/userspace-proxy/nftables"
	"github.com/userspace-proxy/userspace-proxy/proxy"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// hits are what the kernel has counted at the rules.
type hits struct {
	portals map[hitPortal]uint64
	outside map[hitPortal]uint64 // from outside, where that is led elsewhere
	barred  uint64               // to portals from where nobody may come to them
	guarded uint64               // packets that talked to a listener past its portal
}

// hitPortal is what the kernel counts by.
type hitPortal struct {
	Addr     netip.AddrPort
	Protocol service.Protocol
}

// hitsOf is how to read them, by the kind of rules; nil where there are none.
func hitsOf(rules proxy.Rules) func(context.Context) (hits, error) {
	switch r := rules.(type) {
	case *nftables.Runner:
		return func(ctx context.Context) (hits, error) {
			c, err := r.Counts(ctx)
			return hits{hitPortals(c.Portals), hitPortals(c.Outside), c.Barred, c.Guarded}, err
		}
	case *iptables.Runner:
		return func(ctx context.Context) (hits, error) {
			c, err := r.Counts(ctx)
			return hits{hitPortals(c.Portals), hitPortals(c.Outside), c.Barred, c.Guarded}, err
		}
	}
	return nil
}

func hitPortals[P nftables.Portal | iptables.Portal](counts map[P]uint64) map[hitPortal]uint64 {
	portals := make(map[hitPortal]uint64, len(counts))
	for p, n := range counts {
		portals[hitPortal(p)] = n
	}
	return portals
}

// hitReader reads hits for those who ask, and remembers them for a moment:
// reading takes a command, and half a second of it at 10,000 portals.
type hitReader struct {
	read func(context.Context) (hits, error) // nil: there are no rules

	mu   sync.Mutex
	at   time.Time
	last hits
	err  error
}

// newest are hits that are at most a few seconds old, and when they were read.
func (r *hitReader) newest() (hits, time.Time, error) {
	const fresh, patience = 5 * time.Second, 5 * time.Second
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.read != nil && time.Since(r.at) > fresh {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		r.last, r.err = r.read(ctx)
		r.at = time.Now()
	}
	return r.last, r.at, r.err
}
