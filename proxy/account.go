package proxy

import (
	"sync"
	"sync/atomic"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// account is what one service port has carried, in both families.
type account struct {
	name service.PortName

	// TCP. Bytes are added when a connection ends, under the lock of its engine;
	// those of connections that are open are asked for, see tcpEngine.bytes.
	opened   atomic.Uint64
	active   atomic.Int64
	up, down atomic.Int64

	// UDP.
	flowsOpened     atomic.Uint64
	flowsActive     atomic.Int64
	asked, answered traffic
}

// accounts are those of all service ports that are served or have something
// open. A port that comes back while it has goes on counting where it was.
type accounts struct {
	mu  sync.Mutex
	all map[service.PortName]*account
}

func newAccounts() *accounts { return &accounts{all: make(map[service.PortName]*account)} }

// of is the account of a service port.
func (a *accounts) of(name service.PortName) *account {
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.all[name]
	if one == nil {
		one = &account{name: name}
		a.all[name] = one
	}
	return one
}

// list is all of them, in any order.
func (a *accounts) list() []*account {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := make([]*account, 0, len(a.all))
	for _, one := range a.all {
		list = append(list, one)
	}
	return list
}

// forget lets go of the ports that are not served and have nothing open.
func (a *accounts) forget(served map[service.Key]*servicePort) {
	has := make(map[service.PortName]bool, len(served))
	for key := range served {
		has[key.PortName] = true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, one := range a.all {
		if !has[name] && one.active.Load() == 0 && one.flowsActive.Load() == 0 {
			delete(a.all, name)
		}
	}
}

// bytesOf are bytes each way, by account.
type bytesOf map[*account]struct{ up, down int64 }

func (b bytesOf) add(to *account, up, down int64) {
	sum := b[to]
	sum.up, sum.down = sum.up+up, sum.down+down
	b[to] = sum
}

// addEnded adds what connections that have ended have carried.
func (b bytesOf) addEnded(of []*account) {
	for _, one := range of {
		b.add(one, one.up.Load(), one.down.Load())
	}
}
