package proxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// patience bounds every wait of these tests. Nothing takes that long unless it
// never comes.
const patience = 20 * time.Second

var lastAddr atomic.Uint32

// ownAddr is a loopback address that no other test uses, in this process or in
// another that runs beside it.
func ownAddr() netip.Addr {
	n := lastAddr.Add(1)
	return netip.AddrFrom4([4]byte{127, byte(64 + os.Getpid()%128), byte(n >> 8), byte(n)})
}

// fixture is a Proxier without rules that serves one TCP port.
type fixture struct {
	*Proxier
	t      *testing.T
	portal netip.AddrPort
	began  time.Time
	stop   context.CancelFunc
	done   chan struct{}
}

// start runs a Proxier and stops it when the test ends.
func start(t *testing.T, c Config) *fixture {
	t.Helper()
	return startDraining(t, c, 0)
}

// startDraining is start for a Proxier that gives connections some time at its stop.
func startDraining(t *testing.T, c Config, limit time.Duration) *fixture {
	t.Helper()
	if c.Log == nil {
		log := logrus.New()
		log.SetOutput(io.Discard)
		c.Log = log
	}
	c.Defaults()
	c.MinSyncPeriod = time.Millisecond
	p, err := New(c)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	f := &fixture{Proxier: p, t: t, portal: netip.AddrPortFrom(ownAddr(), 8080), began: time.Now(), stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(f.done)
		p.Reconcile(ctx)
		drain, end := context.WithTimeout(context.Background(), limit)
		defer end()
		p.Drain(drain)
		p.Close()
	}()
	t.Cleanup(func() {
		cancel()
		<-f.done
	})
	return f
}

// port is the fixture's service port with the given endpoints.
func (f *fixture) port(endpoints ...netip.AddrPort) service.Port {
	p := service.Port{
		Key:     service.Key{PortName: service.PortName{Namespace: "default", Name: "web", Protocol: service.TCP}, Family: service.IPv4},
		Portals: []service.Portal{{Kind: service.ClusterIP, Addr: f.portal}},
	}
	for _, e := range endpoints {
		p.Endpoints = append(p.Endpoints, service.Endpoint{Addr: e})
	}
	return p
}

// serve makes the port have these endpoints, and returns when it is so.
func (f *fixture) serve(endpoints ...netip.AddrPort) {
	f.t.Helper()
	f.update(f.port(endpoints...))
}

// update makes the Proxier serve these ports, and returns when it does.
func (f *fixture) update(ports ...service.Port) {
	f.t.Helper()
	f.Update(ports, true)
	require.Eventually(f.t, func() bool { return f.serves(ports) }, patience, time.Millisecond)
}

func (f *fixture) serves(ports []service.Port) bool {
	st := f.Status()
	if st.Pending || len(st.Ports) != len(ports) {
		return false
	}
	for i, key := range sortedKeys(byKey(ports)) {
		want := byKey(ports)[key]
		if st.Ports[i].Name != key.PortName.String() || len(st.Ports[i].Endpoints) != len(want.Endpoints)+len(want.Unused) {
			return false
		}
		for j, portal := range st.Ports[i].Portals {
			if portal.State == StateServing != (len(want.Endpoints) > 0) || portal.Addr != want.Portals[j].Addr {
				return false
			}
		}
		for j, e := range st.Ports[i].Endpoints {
			if len(want.Unused) == 0 && e.Addr != want.Endpoints[j].Addr {
				return false
			}
		}
	}
	return true
}

func byKey(ports []service.Port) map[service.Key]service.Port {
	m := make(map[service.Key]service.Port)
	for _, p := range ports {
		m[p.Key] = p
	}
	return m
}

// dial connects a client to the fixture's portal.
func (f *fixture) dial() *net.TCPConn {
	f.t.Helper()
	return dialTCP(f.t, f.portal)
}

func dialTCP(t *testing.T, to netip.AddrPort) *net.TCPConn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", to.String(), patience)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	return conn.(*net.TCPConn)
}

// backend listens on loopback and runs serve for each connection, which it
// closes afterwards.
func backend(t *testing.T, serve func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	ln, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.AddrPortFrom(ownAddr(), 0)))
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		for {
			conn, err := ln.AcceptTCP()
			if err != nil {
				return
			}
			wg.Add(1)
			go func() {
				defer wg.Done()
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(patience))
				serve(conn)
			}()
		}
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		wg.Wait()
	})
	return ln.Addr().(*net.TCPAddr).AddrPort()
}

// named is a backend that says its name first and then echoes.
func named(t *testing.T, name string) netip.AddrPort {
	t.Helper()
	return backend(t, func(conn *net.TCPConn) {
		if _, err := fmt.Fprintln(conn, name); err != nil {
			return
		}
		_, _ = io.Copy(conn, conn)
	})
}

// one hands out the backend's end of the next connection.
func one(t *testing.T) (netip.AddrPort, <-chan *net.TCPConn) {
	t.Helper()
	conns := make(chan *net.TCPConn, 16)
	done := make(chan struct{})
	addr := backend(t, func(conn *net.TCPConn) {
		conns <- conn
		<-done
	})
	t.Cleanup(func() { close(done) }) // before the backend waits for them
	return addr, conns
}

// nobody is an address where a connection is refused.
func nobody(t *testing.T) netip.AddrPort {
	t.Helper()
	return netip.AddrPortFrom(ownAddr(), 9)
}

func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		require.Fail(t, "nothing came")
		panic("unreachable")
	}
}

// requireSaidOnce: what is said of clients is said once in ten seconds.
func (f *fixture) requireSaidOnce(times int, log string) {
	f.t.Helper()
	require.Positive(f.t, times, log)
	require.LessOrEqual(f.t, times, 1+int(time.Since(f.began)/(10*time.Second)), log)
}
