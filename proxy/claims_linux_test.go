package proxy

import (
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// The kernel asks for the right to a low port before it looks whether the address is
// this node's, with IPv6: without that right a load balancer's address was served in
// one family alone.
func TestClaims_lowPortsWithoutTheRight(t *testing.T) {
	t.Parallel()
	here, elsewhere := netip.MustParseAddrPort("[::1]:443"), netip.MustParseAddrPort("[2001:db8::10]:443")
	port := service.Port{Portals: []service.Portal{{Kind: service.LoadBalancer, Addr: here}, {Kind: service.LoadBalancer, Addr: elsewhere}}}
	port.Protocol, port.Family = service.TCP, service.IPv6
	c := newClaims()
	var problems []service.Problem
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread, which has lost its rights, ends with the goroutine
		none := make([]unix.CapUserData, 2)
		err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0])
		if err == nil {
			problems = c.claim(newBudget(1000, 0), netip.Addr.IsLoopback, map[service.Key]service.Port{port.Key: port})
		}
		done <- err
	}()
	require.NoError(t, <-done)
	require.Len(t, problems, 1)
	assert.Equal(t, "NoRight", problems[0].Reason)
	assert.Contains(t, problems[0].Detail, here.String())
	_, taken := c.taken(service.TCP, elsewhere)
	assert.False(t, taken)
}

// An address of another node's needs no descriptor here: its rule stays where there
// is none left.
func TestClaims_withoutDescriptors(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	f := redirected(t, r, Config{Descriptors: 40}) // 20 to share, 15 of them for listeners
	balanced := netip.MustParseAddrPort("198.51.100.1:80")
	leads := func() bool {
		redirects, _ := r.state()
		return slices.ContainsFunc(redirects, func(d service.Redirect) bool { return d.Portal == balanced && d.Action == service.ToListener })
	}
	first := f.portNamed("first", balanced, named(t, "a"))
	f.update(first)
	require.True(t, leads())
	ports := []service.Port{first}
	for i := range 18 {
		ports = append(ports, f.portNamed("z"+string(rune('a'+i)), netip.AddrPortFrom(ownAddr(), 80), named(t, "a")))
	}
	f.Update(ports, true)
	require.Eventually(t, func() bool { return len(f.Status().Problems) > 3 && !f.Status().Pending }, patience, time.Millisecond)
	assert.True(t, leads())
}
