//go:build !linux || portable

package proxy

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// dialsUnderWay are dials whose local end is not known yet: net.Dialer tells
// when they are done.
type dialsUnderWay struct {
	own *ownDials

	mu    sync.Mutex
	last  uint64
	begun map[uint64]struct{}
}

// dial makes a connection to an endpoint on this host, and remembers it.
func (u *dialsUnderWay) dial(d *ownDial, connect func() (*net.TCPConn, error)) (*net.TCPConn, error) {
	u.own.known.Add(1)
	n := u.begin()
	defer u.end(n)
	conn, err := connect()
	if err != nil {
		u.own.known.Add(-1)
		return nil, err
	}
	u.own.mu.Lock()
	defer u.own.mu.Unlock()
	u.own.add(tcpAddr(conn.LocalAddr()), d)
	return conn, nil
}

func (u *dialsUnderWay) begin() uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.last++
	u.begun[u.last] = struct{}{}
	return u.last
}

func (u *dialsUnderWay) end(n uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.begun, n)
}

// settle waits a moment for the dials that a client on this host may be.
func (u *dialsUnderWay) settle(client netip.Addr) {
	if u.own.known.Load() == 0 || !u.own.isHere(client) {
		return
	}
	u.mu.Lock()
	last := u.last
	u.mu.Unlock()
	for range 100 {
		if !u.any(last) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// any says whether one of the dials up to the last is under way.
func (u *dialsUnderWay) any(last uint64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for n := range u.begun {
		if n <= last {
			return true
		}
	}
	return false
}
