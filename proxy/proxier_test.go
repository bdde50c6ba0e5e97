package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// recorder stands for rules where a test must see or fail them. What rules do
// to packets is tested where they are made.
type recorder struct {
	mu     sync.Mutex
	before func([]service.Redirect) error // called at each Sync
	last   []service.Redirect
	syncs  int
}

func (r *recorder) SetLocalPods(service.LocalPods) {}

func (r *recorder) Sync(_ context.Context, redirects []service.Redirect) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.syncs++
	if r.before != nil {
		if err := r.before(redirects); err != nil {
			return err
		}
	}
	r.last = redirects
	return nil
}

func (r *recorder) state() ([]service.Redirect, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last, r.syncs
}

// redirected is a Proxier that leads portals to listeners on a loopback address.
func redirected(t *testing.T, r *recorder, c Config) *fixture {
	t.Helper()
	c.Rules = r
	c.Listen = map[service.Family]netip.Addr{service.IPv4: ownAddr()}
	return start(t, c)
}

// portNamed is a service port beside the fixture's own.
func (f *fixture) portNamed(name string, portal netip.AddrPort, endpoints ...netip.AddrPort) service.Port {
	p := f.port(endpoints...)
	p.Name = name
	p.Portals = []service.Portal{{Kind: service.ExternalIP, Addr: portal}}
	return p
}

func TestOpenRedirectClose(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	f := redirected(t, r, Config{Linger: time.Millisecond})
	a, b := named(t, "a"), named(t, "b")
	portals := []netip.AddrPort{netip.AddrPortFrom(ownAddr(), 80), netip.AddrPortFrom(ownAddr(), 80)}

	f.update(f.portNamed("one", portals[0], a))
	redirects, _ := r.state()
	require.Len(t, redirects, 1)
	old := redirects[0].Listener
	assert.Equal(t, service.Redirect{
		Portal: portals[0], Protocol: service.TCP, Action: service.ToListener, Listener: old,
		Service: service.PortName{Namespace: "default", Name: "one", Protocol: service.TCP},
	}, redirects[0])

	checked := false
	r.before = func(redirects []service.Redirect) error {
		if len(redirects) != 1 || redirects[0].Portal != portals[1] || checked {
			return nil
		}
		checked = true
		_ = dialTCP(t, redirects[0].Listener).Close() // open already
		_ = dialTCP(t, old).Close()                   // not closed yet
		return nil
	}
	f.update(f.portNamed("two", portals[1], b))
	require.Eventually(t, func() bool { _, err := net.Dial("tcp", old.String()); return err != nil }, patience, time.Millisecond)
	assert.True(t, checked)
}

func TestCase32_AFailedSyncKeepsListenersAndIsRetried(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	f := redirected(t, r, Config{Linger: time.Millisecond, SyncPeriod: 20 * time.Millisecond})
	portal := netip.AddrPortFrom(ownAddr(), 80)
	f.update(f.portNamed("one", portal, named(t, "a")))
	redirects, _ := r.state()

	r.mu.Lock()
	r.before = func([]service.Redirect) error { return errors.New("the kernel says no") }
	r.mu.Unlock()
	f.Update(nil, true)
	require.Eventually(t, func() bool { return f.Status().Error != "" }, patience, time.Millisecond)
	assert.Contains(t, f.Status().Error, "apply 0 redirects: the kernel says no")
	_ = dialTCP(t, redirects[0].Listener).Close()
	_, before := r.state()
	require.Eventually(t, func() bool { _, now := r.state(); return now > before+1 }, patience, time.Millisecond, "it tries again by itself")

	r.mu.Lock()
	r.before = nil
	r.mu.Unlock()
	require.Eventually(t, func() bool { return f.Status().Error == "" && len(f.Status().Ports) == 0 }, patience, time.Millisecond)
}

// What rules cannot express keeps nothing open that they do not lead to any more.
// A problem that has stood for long is looked at seldom. What fails meanwhile
// is tried again as soon as where there is none.
func TestAProblemDoesNotDelayTheNextTryAfterAFailure(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	f := redirected(t, r, Config{SyncPeriod: time.Hour})
	taken := backend(t, func(*net.TCPConn) {})
	ports := []service.Port{f.port(), f.portNamed("taken", taken)}
	for range 20 { // after each of which the next look is twice as far away
		f.Update(ports, true)
		require.Eventually(t, func() bool { return !f.Status().Pending }, patience, time.Millisecond)
	}
	require.Len(t, f.Status().Problems, 1)

	fails := 1
	r.mu.Lock()
	r.before = func([]service.Redirect) error {
		fails--
		if fails >= 0 {
			return errors.New("the kernel says no")
		}
		return nil
	}
	r.mu.Unlock()
	f.Update(ports, true)
	require.Eventually(t, func() bool { return !f.Status().Pending }, patience, time.Millisecond)
	assert.Empty(t, f.Status().Error)
}

func TestLeftOutRedirectsAreReportedAndTheOthersApplied(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	f := redirected(t, r, Config{Linger: time.Millisecond})
	f.update(f.portNamed("one", netip.AddrPortFrom(ownAddr(), 80), named(t, "a")))
	redirects, _ := r.state()

	r.mu.Lock()
	r.before = func([]service.Redirect) error { return &service.LeftOutError{Err: errors.New("two is left out")} }
	r.mu.Unlock()
	f.Update(nil, true)
	require.Eventually(t, func() bool { return f.Status().Error == "apply 0 redirects: two is left out" }, patience, time.Millisecond)
	require.Empty(t, f.Status().Ports)
	require.Eventually(t, func() bool { _, err := net.Dial("tcp", redirects[0].Listener.String()); return err != nil }, patience, time.Millisecond)
}

func TestCase37_NothingIsRemovedUntilComplete(t *testing.T) {
	t.Parallel()
	f := start(t, Config{})
	other := netip.AddrPortFrom(ownAddr(), 80)
	f.serve(named(t, "a"))
	f.Update([]service.Port{f.portNamed("late", other, named(t, "b"))}, false)
	require.Eventually(t, func() bool { return len(f.Status().Ports) == 2 }, patience, time.Millisecond)
	assert.Equal(t, "a", f.who())
	f.Update([]service.Port{f.portNamed("late", other, named(t, "b"))}, true)
	require.Eventually(t, func() bool { return len(f.Status().Ports) == 1 }, patience, time.Millisecond)
	f.refused(f.portal)
}

// Until all sources are in, what is served already stays; but a portal that has
// a new owner is the new owner's.
func TestCase37_APortalMovesWhileIncomplete(t *testing.T) {
	t.Parallel()
	for _, rules := range []bool{false, true} {
		t.Run(fmt.Sprint("rules ", rules), func(t *testing.T) {
			t.Parallel()
			r := &recorder{}
			f := start(t, Config{})
			if rules {
				f = redirected(t, r, Config{})
			}
			portal := netip.AddrPortFrom(ownAddr(), 80)
			f.update(f.portNamed("old", portal, named(t, "old")))
			f.Update([]service.Port{f.portNamed("new", portal, named(t, "new"))}, false)
			require.Eventually(t, func() bool { return len(f.Status().Ports) == 2 && !f.Status().Pending }, patience, time.Millisecond)
			assert.Empty(t, f.Status().Problems)
			to := portal
			if rules {
				redirects, _ := r.state()
				require.Len(t, redirects, 1)
				to = redirects[0].Listener
			}
			line := make([]byte, 4)
			_, err := io.ReadFull(dialTCP(t, to), line)
			require.NoError(t, err)
			assert.Equal(t, "new\n", string(line))
		})
	}
}

func TestPortalMovesToAnotherServicePort(t *testing.T) {
	t.Parallel()
	f := start(t, Config{})
	for i := range 5 { // each time the number is still in use when the next wants it
		name := fmt.Sprint("service-", i)
		f.update(f.portNamed(name, f.portal, named(t, name)))
		assert.Equal(t, name, f.who())
		assert.Empty(t, f.Status().Problems)
	}
}

// asking is a log that asks for the status before it takes a line.
type asking struct{ ask func() }

func (a asking) Levels() []logrus.Level { return logrus.AllLevels }

func (a asking) Fire(*logrus.Entry) error {
	a.ask()
	return nil
}

// A log that is slow to take a problem keeps nobody from asking how things are.
func TestAProblemIsLoggedWhileOthersMayAsk(t *testing.T) {
	t.Parallel()
	log := logrus.New()
	log.SetOutput(io.Discard)
	told := make(chan Status, 1)
	var f *fixture
	begun := make(chan struct{})
	log.AddHook(asking{func() {
		<-begun
		told <- f.Status()
	}})
	f = start(t, Config{Log: log})
	close(begun)
	taken := backend(t, func(*net.TCPConn) {})
	f.Update([]service.Port{f.portNamed("taken", taken)}, true)
	select {
	case <-told:
	case <-time.After(patience):
		t.Fatal("the status waits for the log")
	}
}

func TestCase33_ATakenPortIsAProblemUntilItIsFree(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]*recorder{"none": nil, "redirect": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			log := logrus.New()
			log.SetOutput(&out)
			c := Config{SyncPeriod: 10 * time.Millisecond, Log: log}
			var f *fixture
			if r == nil {
				f = start(t, c)
			} else {
				f = redirected(t, r, c)
			}
			daemon, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.AddrPortFrom(ownAddr(), 0)))
			require.NoError(t, err)
			taken := daemon.Addr().(*net.TCPAddr).AddrPort()
			p := f.portNamed("web", taken, named(t, "a"))
			p.Source = "apiserver"
			p.Portals[0].Kind = service.NodePort
			free := netip.AddrPortFrom(ownAddr(), 80)
			p.Portals = append(p.Portals, service.Portal{Kind: service.ExternalIP, Addr: free})
			f.Update([]service.Port{p}, true)
			require.Eventually(t, func() bool { return len(f.Status().Problems) == 1 }, patience, time.Millisecond)
			problem := f.Status().Problems[0]
			assert.Equal(t, "PortTaken", problem.Reason)
			assert.Equal(t, "Service default/web", problem.Object)
			assert.Equal(t, service.ServiceRef{Source: "apiserver", Namespace: "default", Name: "web"}, problem.Service)
			assert.Equal(t, []service.Problem{problem}, f.Problems())
			assert.Contains(t, problem.Detail, "NodePort "+taken.String())
			states := map[netip.AddrPort]string{}
			for _, portal := range f.Status().Ports[0].Portals {
				states[portal.Addr] = portal.State
			}
			assert.Equal(t, map[netip.AddrPort]string{taken: "unserved", free: "serving"}, states, "the other portal goes on")
			if r != nil {
				redirects, _ := r.state()
				require.Len(t, redirects, 1)
				assert.Equal(t, free, redirects[0].Portal, "no rule takes the daemon's traffic")
			}

			require.NoError(t, daemon.Close())
			require.Eventually(t, func() bool { return len(f.Status().Problems) == 0 }, patience, time.Millisecond)
			f.stop()
			<-f.done
			assert.Equal(t, 1, bytes.Count(out.Bytes(), []byte("PortTaken\n"))+bytes.Count(out.Bytes(), []byte("another program")), "said once, not at every try: %s", out.String())
		})
	}
}

func TestListenerPortsSkipThoseInUse(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	f := redirected(t, r, Config{Ports: service.PortRange{First: 10000, Last: 10002}})
	listen := f.config.Listen[service.IPv4]
	stranger, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.AddrPortFrom(listen, 10001)))
	require.NoError(t, err)
	defer stranger.Close()
	var ports []service.Port
	for i := range 3 {
		ports = append(ports, f.portNamed(fmt.Sprint("s", i), netip.AddrPortFrom(ownAddr(), 80), named(t, "a")))
	}
	f.update(ports[:2]...)
	redirects, _ := r.state()
	assert.Equal(t, []netip.AddrPort{netip.AddrPortFrom(listen, 10000), netip.AddrPortFrom(listen, 10002)},
		[]netip.AddrPort{redirects[0].Listener, redirects[1].Listener})

	f.Update(ports, true)
	require.Eventually(t, func() bool { return len(f.Status().Problems) == 1 }, patience, time.Millisecond)
	assert.Contains(t, f.Status().Problems[0].Detail, "every TCP port of "+listen.String()+" in 10000-10002 is in use")
}

func TestListenersLeaveDescriptorsToTraffic(t *testing.T) {
	t.Parallel()
	f := start(t, Config{Descriptors: 40}) // 20 to share, 15 of them for listeners
	var ports []service.Port
	for i := range 18 {
		ports = append(ports, f.portNamed(fmt.Sprintf("s%02d", i), netip.AddrPortFrom(ownAddr(), 80), named(t, "a")))
	}
	f.Update(ports, true)
	require.Eventually(t, func() bool { return len(f.Status().Problems) == 3 }, patience, time.Millisecond)
	for _, p := range f.Status().Problems {
		assert.Equal(t, "DescriptorsUsedUp", p.Reason)
	}
	f.Update(nil, true)
	require.Eventually(t, func() bool { return f.Status().Descriptors.Listeners == 0 }, patience, time.Millisecond)
}

// Whatever the order of changes, what is served in the end is what a fresh
// Proxier serves, and what is not served holds nothing.
func TestCase43_AnyOrderOfChangesEndsAlike(t *testing.T) {
	t.Parallel()
	for _, rules := range []bool{false, true} {
		t.Run(fmt.Sprint("rules ", rules), func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 0))
			c := Config{Linger: time.Millisecond}
			f := start(t, c)
			if rules {
				f = redirected(t, &recorder{}, c)
			}
			backends := []netip.AddrPort{named(t, "a"), named(t, "b"), udpEcho(t)}
			portals := []netip.AddrPort{}
			for range 4 {
				portals = append(portals, netip.AddrPortFrom(ownAddr(), 80))
			}
			var last []service.Port
			for range 100 {
				last = nil
				for _, i := range random.Perm(len(portals))[:random.IntN(len(portals)+1)] {
					p := f.portNamed(fmt.Sprint("s", random.IntN(3), "-", i), portals[i])
					if random.IntN(2) == 0 {
						p.Protocol = service.UDP
					}
					for _, e := range backends[:random.IntN(len(backends))] {
						p.Endpoints = append(p.Endpoints, service.Endpoint{Addr: e})
					}
					p.Affinity = time.Duration(random.IntN(2)) * time.Hour
					last = append(last, p)
				}
				f.Update(last, true)
				if random.IntN(3) == 0 {
					time.Sleep(time.Duration(random.IntN(3)) * time.Millisecond)
				}
			}
			f.update(last...)
			assert.Empty(t, f.Status().Problems)
			f.update()
			require.Eventually(t, func() bool { return f.Status().Descriptors.Listeners == 0 }, patience, time.Millisecond)
		})
	}
}

func TestConfigNamesAllFaultsByTheirFlags(t *testing.T) {
	t.Parallel()
	_, err := New(Config{
		DialTimeout: -1, HalfCloseTimeout: -1, IdleTimeout: -1, UDPTimeout: -1, SyncPeriod: -1, MinSyncPeriod: -1,
		KeepAlive: 10 * time.Hour, MaxUDPFlows: -1, Ports: service.PortRange{First: 9, Last: 8}, Rules: &recorder{},
	})
	require.Error(t, err)
	for _, flag := range []string{
		"--dial-timeout", "--tcp-half-close-timeout", "--tcp-idle-timeout", "--tcp-keepalive", "--udp-timeout", "--sync-period",
		"--min-sync-period", "--max-udp-flows", "--proxy-port-range", "listening address",
	} {
		assert.ErrorContains(t, err, flag)
	}
}
