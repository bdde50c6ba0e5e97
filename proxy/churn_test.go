package proxy

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// usage is what a process has, when it is at rest.
type usage struct {
	heap                    uint64
	goroutines, descriptors int
}

func usageNow() usage {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what finalizers and pools let go of
	runtime.ReadMemStats(&m)
	fds, _ := os.ReadDir("/proc/self/fd") // none elsewhere
	return usage{m.HeapAlloc, runtime.NumGoroutine(), len(fds)}
}

// A day of churn, compressed: a Service changes ten times a minute, which makes
// 14,400 changes, each under a name that was never there before, with endpoints
// that come and go, affinity, limits, connections and flows from clients that
// never come again. Afterwards there is as much as after the first tenth.
//
// Not beside other tests: it measures the process.
func TestCase44_ADayOfChurnLeavesNothingBehind(t *testing.T) {
	const (
		alive   = 8 // Services at a time; an update replaces them all
		updates = 14_400 / (2 * alive)
		slack   = 1 << 20         // bytes of heap that may come and go: pools, maps' spare room
		pause   = 2 * time.Second // for sockets to be given back, at most
	)
	r := &recorder{}
	f := redirected(t, r, Config{Linger: time.Millisecond, UDPTimeout: 20 * time.Millisecond, MaxPerClient: 1000})
	web, dns, dead := named(t, "a"), udpEcho(t), nobody(t)
	random := rand.New(rand.NewPCG(2014, 6))
	rested := func() usage {
		t.Helper()
		f.update()
		f.drained()
		require.Eventually(t, func() bool {
			st := f.Status()
			return st.Descriptors.Listeners == 0 && st.Descriptors.Flows == 0
		}, patience, time.Millisecond)
		now := usageNow()
		for end := time.Now().Add(pause); time.Now().Before(end); time.Sleep(10 * time.Millisecond) { // the fewest that are seen
			u := usageNow()
			now = usage{min(now.heap, u.heap), min(now.goroutines, u.goroutines), min(now.descriptors, u.descriptors)}
		}
		return now
	}
	var early usage
	for n := range updates {
		var ports []service.Port
		for i := range alive {
			p := f.portNamed(fmt.Sprintf("s%06d", n*alive+i), netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, byte(n >> 8), byte(i)}), 80))
			p.Affinity = time.Duration(random.IntN(2)) * time.Hour
			p.MaxConnections = random.IntN(3) * 100
			at := web
			if i%2 == 1 {
				p.Protocol, at = service.UDP, dns
			}
			for _, e := range []netip.AddrPort{at, dead}[:1+random.IntN(2)] {
				p.Endpoints = append(p.Endpoints, service.Endpoint{Addr: e})
			}
			ports = append(ports, p)
		}
		f.Update(ports, true)
		require.Eventually(t, func() bool { return !f.Status().Pending }, patience, time.Millisecond)
		redirects, _ := r.state()
		for _, to := range redirects[:2] {
			use(t, to, netip.AddrFrom4([4]byte{127, 1, byte(n >> 8), byte(n)}))
		}
		if n == updates/10 {
			early = rested()
		}
	}
	late := rested()
	t.Logf("after a tenth %d KiB of heap, %d goroutines, %d descriptors; at the end %d KiB, %d, %d",
		early.heap>>10, early.goroutines, early.descriptors, late.heap>>10, late.goroutines, late.descriptors)
	assert.LessOrEqual(t, late.heap, early.heap+slack)
	assert.LessOrEqual(t, late.goroutines, early.goroutines)
	assert.LessOrEqual(t, late.descriptors, early.descriptors)
}

// use makes a connection or a flow, whatever becomes of it.
func use(t *testing.T, to service.Redirect, client netip.Addr) {
	t.Helper()
	if to.Protocol == service.UDP {
		conn, err := net.DialUDP("udp4", &net.UDPAddr{IP: client.AsSlice()}, net.UDPAddrFromAddrPort(to.Listener))
		require.NoError(t, err)
		_, _ = conn.Write([]byte("x"))
		require.NoError(t, conn.Close())
		return
	}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: client.AsSlice()}, Timeout: patience, ControlContext: leavePortToConnect}
	conn, err := d.Dial("tcp4", to.Listener.String())
	require.NoError(t, err)
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, _ = io.ReadFull(conn, make([]byte, 1))
}
