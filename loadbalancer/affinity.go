package loadbalancer

import (
	"net/netip"
	"time"
)

// maxClients bounds the clients that a group remembers, so that forged UDP
// sources cannot eat the machine's memory (some 100 bytes each, 25 MB in all). It
// is as many connections as Linux tracks by default where it has over 4 GB.
const maxClients = 1 << 18

// affinity remembers which endpoint each client goes to, until it has not been
// used for the timeout.
//
// Clients are kept in two maps, those seen lately and those seen before. Once
// per timeout the older map is thrown away whole, as all in it are over; the
// recent one becomes the older, and an empty one the recent. So nothing is ever
// searched for what has expired, a call costs the same with many clients as
// with few, and memory really returns (a Go map does not shrink when entries
// are deleted). The price: an entry that is over may stay in memory, unused,
// for as long again.
type affinity struct {
	timeout time.Duration // idle time after which an entry is over; 0 is no affinity
	over    time.Time     // entries last used then or earlier are over, however long the timeout is now
	recent  map[netip.Addr]use
	older   map[netip.Addr]use
	turned  time.Time // when recent was empty; all in older were last used before
}

// use is a client's last use of an endpoint.
type use struct {
	endpoint *endpoint
	at       time.Time
}

// setTimeout changes the timeout for the entries that exist too. No affinity
// forgets them.
func (a *affinity) setTimeout(timeout time.Duration, now time.Time) {
	if timeout == a.timeout {
		return
	}
	if timeout == 0 {
		*a = affinity{}
		return
	}
	if a.timeout > 0 {
		// What the old timeout ended, a longer one must not bring back, or
		// whether a client returns would hang on what was thrown away when.
		if over := now.Add(-a.timeout); over.After(a.over) {
			a.over = over
		}
	}
	a.timeout = timeout
}

// endpoint is the one that the client goes to; nil where there is none.
func (a *affinity) endpoint(client netip.Addr, now time.Time) *endpoint {
	ep, _ := a.lookup(client, now)
	return ep
}

// lookup tells also when the client last used it.
func (a *affinity) lookup(client netip.Addr, now time.Time) (*endpoint, time.Time) {
	if a.timeout == 0 {
		return nil, time.Time{}
	}
	u, ok := a.recent[client]
	if !ok {
		u, ok = a.older[client]
	}
	if !ok || u.endpoint.gone || now.Sub(u.at) >= a.timeout || !u.at.After(a.over) {
		return nil, time.Time{}
	}
	return u.endpoint, u.at
}

// record notes that the client uses the endpoint now.
func (a *affinity) record(client netip.Addr, ep *endpoint, now time.Time) {
	if a.timeout == 0 || !client.IsValid() {
		return
	}
	a.turn(now)
	if len(a.older) > 0 {
		delete(a.older, client)
	}
	a.recent[client] = use{endpoint: ep, at: now}
}

// turn throws the older map away when all in it are over. It does so early
// where there are too many clients; then those longest unused are forgotten.
func (a *affinity) turn(now time.Time) {
	due := now.Sub(a.turned) >= a.timeout || len(a.recent) >= maxClients/2
	if a.timeout == 0 || a.recent != nil && !due {
		return
	}
	a.older, a.recent, a.turned = a.recent, make(map[netip.Addr]use), now
}

// forget drops all entries.
func (a *affinity) forget() { a.older, a.recent = nil, nil }

// entries counts the clients in memory.
func (a *affinity) entries() int { return len(a.recent) + len(a.older) }
