package proxy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// entries stand for connection tracking where a test must fail it or count how
// often it is asked. What the kernel's does is tested where it is asked, and
// with real packets in e2e.
type entries struct {
	mu       sync.Mutex
	all      []string // "10.96.0.10:53 169.254.77.1:10000": a sender's destination, where it is led, and who sends where that matters
	failing  error
	looks    int
	timeouts [2]time.Duration
}

func (e *entries) DeleteUDP(f service.Family, stale func(from netip.Addr, to, ledTo netip.AddrPort) bool) (deleted int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.looks++
	if e.failing != nil {
		return 0, e.failing
	}
	before := len(e.all)
	e.all = slices.DeleteFunc(e.all, func(s string) bool {
		to, ledTo, from := parseEntry(s)
		return service.FamilyOf(to.Addr()) == f && stale(from, to, ledTo)
	})
	return before - len(e.all), nil
}

func parseEntry(s string) (to, ledTo netip.AddrPort, from netip.Addr) {
	a, b, c := "", "", "192.0.2.99"
	_, _ = fmt.Sscan(s, &a, &b, &c)
	return netip.MustParseAddrPort(a), netip.MustParseAddrPort(b), netip.MustParseAddr(c)
}

func (e *entries) UDPTimeouts() (unanswered, answered time.Duration, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.timeouts == [2]time.Duration{} {
		return 0, 0, errors.New("nothing is tracked")
	}
	return e.timeouts[0], e.timeouts[1], nil
}

func (e *entries) add(all ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, all...)
}

func (e *entries) fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failing = err
}

func (e *entries) state() (all []string, looks int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.all), e.looks
}

const (
	portalA, portalB     = "10.96.0.1:53", "10.96.0.2:53"
	listenerA, listenerB = "169.254.77.1:10001", "169.254.77.1:10002"
)

// leading is a redirect of UDP; to nowhere it is refused.
func leading(portal, listener string) service.Redirect {
	r := service.Redirect{Portal: netip.MustParseAddrPort(portal), Protocol: service.UDP, Action: service.Refuse}
	if listener != "" {
		r.Action, r.Listener = service.ToListener, netip.MustParseAddrPort(listener)
	}
	return r
}

func newTestTracking(e *entries) *tracking {
	c := Config{Conntrack: e, Metrics: NewMetrics(prometheus.NewRegistry()), Listen: map[service.Family]netip.Addr{
		service.IPv4: netip.MustParseAddr("169.254.77.1"), service.IPv6: netip.MustParseAddr("fd77::1"),
	}}
	c.Defaults()
	return newTracking(c)
}

func listeners(all ...string) map[netip.AddrPort]bool {
	m := make(map[netip.AddrPort]bool)
	for _, a := range all {
		m[netip.MustParseAddrPort(a)] = true
	}
	return m
}

func noneRests(socketPlace) bool { return false }

func TestCase19_EntriesFollowTheRules(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		first bool // there has been no look before
		entry string
		goes  bool
	}{
		"from before the portal":                      {entry: portalA + " " + portalA, goes: true},
		"where others led it before":                  {entry: portalA + " 10.10.2.9:53", goes: true},
		"to its listener":                             {entry: portalA + " " + listenerA},
		"to its listener, at the start":               {first: true, entry: portalA + " " + listenerA},
		"to another's listener":                       {entry: portalA + " " + listenerB, goes: true},
		"to a listener, of what is refused now":       {entry: "10.96.0.3:53 " + listenerA, goes: true},
		"of another port of a portal's address":       {entry: "10.96.0.1:54 10.96.0.1:54"},
		"of somebody else":                            {entry: "10.10.1.2:53 10.10.1.2:53"},
		"of somebody else, at the start":              {first: true, entry: "10.10.1.2:53 10.10.1.2:53"},
		"somebody else's translation":                 {entry: "192.0.2.1:53 10.10.2.9:53"},
		"somebody else's to the listening address":    {entry: "192.0.2.1:53 169.254.77.1:53"},
		"to a port of ours, by itself":                {entry: listenerA + " " + listenerA},
		"to a port that nobody serves":                {entry: "10.96.0.9:53 169.254.77.1:10009", goes: true},
		"to a port that we serve, from an old portal": {entry: "10.96.0.9:53 " + listenerA},
		"the same, but of a process before this":      {first: true, entry: "10.96.0.9:53 " + listenerA, goes: true},
		"IPv6 from before the portal":                 {entry: "[fd96::1]:53 [fd96::1]:53", goes: true},
		"IPv6 to its listener":                        {entry: "[fd96::1]:53 [fd77::1]:10001"},
		"IPv6 to a port that nobody serves":           {first: true, entry: "[fd96::9]:53 [fd77::1]:10009", goes: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := &entries{}
			tracked := newTestTracking(e)
			if !test.first {
				_, err := tracked.follow(nil, service.LocalPods{}, nil, noneRests)
				require.NoError(t, err)
			}
			e.add(test.entry)
			_, err := tracked.follow([]service.Redirect{
				leading(portalA, listenerA), leading(portalB, listenerB), leading("10.96.0.3:53", ""), leading("[fd96::1]:53", "[fd77::1]:10001"),
			}, service.LocalPods{}, listeners(listenerA, listenerB, "[fd77::1]:10001"), noneRests)
			require.NoError(t, err)
			all, _ := e.state()
			assert.Equal(t, test.goes, len(all) == 0)
			assert.Equal(t, test.goes, testutil.ToFloat64(tracked.metrics.conntrackDeleted) == 1)
		})
	}
}

// Of a portal that leads what comes from outside elsewhere each sender's entry
// must be as the rules would make it for that sender.
func TestSemantics_trafficPolicies_entriesFollow(t *testing.T) {
	t.Parallel()
	ranges := service.LocalPods{Ranges: []netip.Prefix{netip.MustParsePrefix("10.10.3.0/24")}}
	byInterface := service.LocalPods{Interface: "cali*"}
	outside := func(portal, listener string) service.Redirect {
		r := leading(portal, listener)
		r.Scope = service.Outside
		return r
	}
	both := []service.Redirect{leading(portalA, listenerA), outside(portalA, listenerB)}
	drops := []service.Redirect{leading(portalA, listenerA), outside(portalA, "")}
	one := []service.Redirect{leading(portalA, listenerA)}
	ranged := []service.Redirect{leading(portalA, listenerA)}
	ranged[0].Sources = service.SourceRanges{Limited: true, Allowed: []netip.Prefix{netip.MustParsePrefix("10.10.1.0/24")}}
	const client, pod, node = " 10.10.1.2", " 10.10.3.2", " 10.10.2.1"
	toA, toB := portalA+" "+listenerA, portalA+" "+listenerB
	for name, test := range map[string]struct {
		before, now []service.Redirect
		pods        service.LocalPods
		entry       string
		goes        bool
	}{
		"a client's to the listener for everyone":                    {both, both, ranges, toA + client, true},
		"a client's to the listener for outside":                     {both, both, ranges, toB + client, false},
		"a pod's to the listener for everyone":                       {both, both, ranges, toA + pod, false},
		"a pod's to the listener for outside":                        {both, both, ranges, toB + pod, true},
		"the node's to the listener for everyone":                    {both, both, ranges, toA + node, false},
		"the node's to the listener for outside":                     {both, both, ranges, toB + node, true},
		"a pod's where pods are not told from others":                {both, both, service.LocalPods{}, toA + pod, true},
		"a client's when the policy becomes Local":                   {one, both, ranges, toA + client, true},
		"a pod's when the policy becomes Local":                      {one, both, ranges, toA + pod, false},
		"a client's when the policy becomes Cluster":                 {both, one, ranges, toB + client, true},
		"a client's when the last local endpoint goes":               {both, drops, ranges, toB + client, true},
		"a pod's when the last local endpoint goes":                  {both, drops, ranges, toA + pod, false},
		"a client's from before a drop":                              {one, drops, ranges, portalA + " " + portalA + client, true},
		"by an interface: to either, where nothing has changed":      {both, both, byInterface, toA + client, false},
		"by an interface: to neither":                                {both, both, byInterface, portalA + " 169.254.77.1:10009" + client, true},
		"by an interface: to either, when the policy becomes Local":  {one, both, byInterface, toA + client, true},
		"by an interface: the node's, when the policy becomes Local": {one, both, byInterface, toA + node, false},
		"of one who may come":                                        {one, ranged, ranges, toA + client, false},
		"of one who may not come any more":                           {one, ranged, ranges, toA + pod, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := &entries{}
			tracked := newTestTracking(e)
			tracked.isHere = func(a netip.Addr) bool { return a == netip.MustParseAddr("10.10.2.1") }
			served := listeners(listenerA, listenerB)
			_, err := tracked.follow(test.before, test.pods, served, noneRests)
			require.NoError(t, err)
			e.add(test.entry)
			tracked.damaged() // so that it looks where nothing has changed too
			tracked.begin()
			_, err = tracked.follow(test.now, test.pods, served, noneRests)
			require.NoError(t, err)
			all, _ := e.state()
			assert.Equal(t, test.goes, len(all) == 0)
		})
	}
}

func TestTrackingLooksOncePerFamilyWhereUDPHasChanged(t *testing.T) {
	t.Parallel()
	e := &entries{}
	tracked := newTestTracking(e)
	follow := func(looks int, resting bool, redirects ...service.Redirect) {
		t.Helper()
		_, before := e.state()
		tracked.begin()
		_, err := tracked.follow(redirects, service.LocalPods{}, nil, func(at socketPlace) bool { return resting && at.family == service.IPv4 })
		require.NoError(t, err)
		_, after := e.state()
		assert.Equal(t, looks, after-before)
	}
	a := leading(portalA, listenerA)
	tcp := leading(portalB, listenerB)
	tcp.Protocol = service.TCP
	follow(2, false, a) // the first time
	follow(0, false, a)
	follow(0, false, a, tcp)
	follow(1, false, a, leading(portalB, listenerB), tcp)
	follow(1, false, a, leading(portalB, "")) // another action
	follow(1, false, a, leading(portalB, listenerB))
	follow(1, false, a)
	follow(1, false, leading(portalA, listenerB))
	follow(1, false, leading(portalA, listenerB), leading("[fd96::1]:53", "[fd77::1]:10001"))
	follow(1, true, leading(portalA, listenerB), leading("[fd96::1]:53", "[fd77::1]:10001"))
	tracked.damaged()
	follow(2, false, leading(portalA, listenerB), leading("[fd96::1]:53", "[fd77::1]:10001"))
	follow(0, false, leading(portalA, listenerB), leading("[fd96::1]:53", "[fd77::1]:10001"))
}

// Rules that are wiped while they are made, or just afterwards, are not there
// when entries are looked through: senders make entries that lead to nobody
// until the next time, after which there must be another look.
func TestTrackingLooksAgainWhereRulesWereWipedMeanwhile(t *testing.T) {
	t.Parallel()
	e, r := &entries{}, &recorder{}
	var f *fixture
	begun := make(chan struct{})
	var once sync.Once
	r.before = func([]service.Redirect) error {
		<-begun
		once.Do(func() { f.Restore(true) })
		return nil
	}
	f = redirected(t, r, Config{Conntrack: e})
	close(begun)
	f.serve()
	require.Eventually(t, func() bool { return f.Status().Restored == 1 }, patience, time.Millisecond)
	_, syncs := r.state()
	assert.Equal(t, 2, syncs, "the second has restored them")
	require.Eventually(t, func() bool { _, looks := e.state(); return looks == 2 }, patience, time.Millisecond)
}

func TestTrackingLooksAgainAfterAFailure(t *testing.T) {
	t.Parallel()
	e := &entries{}
	tracked := newTestTracking(e)
	for _, redirects := range [][]service.Redirect{{leading(portalA, listenerA)}, {leading(portalA, listenerB)}} {
		e.add(portalA + " " + portalA)
		tracked.damaged()
		tracked.begin()
		e.fail(errors.New("the kernel says no"))
		clean, err := tracked.follow(redirects, service.LocalPods{}, nil, noneRests)
		require.ErrorContains(t, err, "the kernel says no")
		assert.Empty(t, clean)
		e.fail(nil)
		clean, err = tracked.follow(redirects, service.LocalPods{}, nil, noneRests)
		require.NoError(t, err)
		assert.ElementsMatch(t, []socketPlace{{service.IPv4, service.UDP}, {service.IPv6, service.UDP}}, clean)
		all, _ := e.state()
		assert.Empty(t, all)
	}
	assert.Equal(t, 4., testutil.ToFloat64(tracked.metrics.conntrackFailures))
}

func TestCase11_FlowsEndBeforeTheirEntries(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, test := range []struct {
		want, unanswered, answered, idle time.Duration
		problem                          string
	}{
		{30 * s, 30 * s, 120 * s, 29 * s, ""}, // the defaults
		{10 * s, 30 * s, 120 * s, 10 * s, ""},
		{time.Minute, 30 * s, 120 * s, 29 * s, "UDP flows end after 29s and not 1m0s: the kernel forgets after 30s whom a reply is for"},
		{time.Minute, 120 * s, 30 * s, 29 * s, "UDP flows end after 29s and not 1m0s: the kernel forgets after 30s whom a reply is for"},
		{time.Minute, 120 * s, 180 * s, time.Minute, ""},
		{time.Minute, 0, 0, time.Minute, ""}, // nothing is tracked yet
	} {
		tracked := newTestTracking(&entries{timeouts: [2]time.Duration{test.unanswered, test.answered}})
		idle, problem := tracked.flowIdle(test.want)
		assert.Equal(t, test.idle, idle, "%+v", test)
		if test.problem == "" {
			assert.Nil(t, problem, "%+v", test)
		} else if assert.NotNil(t, problem, "%+v", test) {
			assert.Equal(t, test.problem, problem.Detail)
			assert.Contains(t, problem.Advice, "to 60 or more with sysctl, or --udp-timeout to 30s or less")
		}
	}
}

// udpPort is a service port of UDP.
func (f *fixture) udpPort(name string, portal netip.AddrPort, endpoints ...netip.AddrPort) service.Port {
	p := f.portNamed(name, portal, endpoints...)
	p.Protocol = service.UDP
	return p
}

// A Service is removed. Its port is nobody else's until no entry leads there;
// a failure to find out is told, tried again and harms nothing else.
func TestUDPPortRestsWhileEntriesMayLeadThere(t *testing.T) {
	t.Parallel()
	r, e := &recorder{}, &entries{}
	f := redirected(t, r, Config{
		Conntrack: e, SyncPeriod: 20 * time.Millisecond, Ports: service.PortRange{First: 20001, Last: 20002}, UDPTimeout: time.Minute,
	})
	portal := netip.AddrPortFrom(ownAddr(), 53)
	listener := func() netip.AddrPort {
		redirects, _ := r.state()
		require.Len(t, redirects, 1)
		return redirects[0].Listener
	}
	f.update(f.udpPort("one", portal, echoUDP(t).addr))
	first := listener()
	require.Equal(t, uint16(20001), first.Port())

	e.fail(errors.New("the kernel says no"))
	f.update(f.udpPort("two", portal, echoUDP(t).addr))
	second := listener()
	require.Equal(t, uint16(20002), second.Port())
	require.Eventually(t, func() bool { return len(f.Status().Problems) == 1 }, patience, time.Millisecond)
	assert.Equal(t, "ConntrackFailed", f.Status().Problems[0].Reason)
	assert.Contains(t, f.Status().Problems[0].Detail, "the kernel says no")
	assert.Empty(t, f.Status().Error, "the sync has not failed")

	f.Update([]service.Port{f.udpPort("three", portal, echoUDP(t).addr)}, true)
	require.Eventually(t, func() bool { return len(f.Status().Problems) == 2 }, patience, time.Millisecond)
	assert.Equal(t, "CannotListen", f.Status().Problems[0].Reason)
	assert.Contains(t, f.Status().Problems[0].Detail, "in 20001-20002 is in use, or was a moment ago")

	e.fail(nil)
	require.Eventually(t, func() bool { return len(f.Status().Problems) == 0 }, patience, time.Millisecond)
	assert.Contains(t, []uint16{20001, 20002}, listener().Port())
}

// Where nobody can ever say whether an entry leads there, as in a kernel without
// nf_conntrack_netlink, a port comes back when an entry must have ended.
func TestUDPPortRestsNoLongerThanAnEntryLives(t *testing.T) {
	t.Parallel()
	r, e := &recorder{}, &entries{timeouts: [2]time.Duration{20 * time.Millisecond, 10 * time.Millisecond}}
	e.fail(errors.New("the kernel cannot say"))
	f := redirected(t, r, Config{
		Conntrack: e, SyncPeriod: 5 * time.Millisecond, Ports: service.PortRange{First: 20003, Last: 20004}, UDPTimeout: time.Millisecond,
	})
	portal := netip.AddrPortFrom(ownAddr(), 53)
	for _, name := range []string{"one", "two", "three", "four", "five"} {
		f.Update([]service.Port{f.udpPort(name, portal, echoUDP(t).addr)}, true)
		require.Eventually(t, func() bool {
			redirects, _ := r.state()
			return len(redirects) == 1 && redirects[0].Service.Name == name
		}, patience, time.Millisecond, name)
	}
}

// The kernel's timeouts change while a flow is open.
func TestCase11_FlowsFollowTheKernelsTimeout(t *testing.T) {
	t.Parallel()
	r, e := &recorder{}, &entries{timeouts: [2]time.Duration{time.Hour, time.Hour}}
	f := redirected(t, r, Config{Conntrack: e, UDPTimeout: time.Minute})
	portal := netip.AddrPortFrom(ownAddr(), 53)
	f.update(f.udpPort("one", portal, echoUDP(t).addr))
	redirects, _ := r.state()
	c := newUDPClient(t, redirects[0].Listener)
	assert.Equal(t, "hello", c.ask("hello"))
	assert.Empty(t, f.Status().Problems)
	idle := func() time.Duration {
		prospect, _ := f.Prospect(service.UDP, portal, netip.Addr{})
		return prospect.Timings.UDPIdle
	}
	assert.Equal(t, time.Minute, idle())

	e.mu.Lock()
	e.timeouts[0] = 30 * time.Millisecond
	e.mu.Unlock()
	f.wake()
	require.Eventually(t, func() bool {
		return f.shared.metrics.udp.ended[endedIdle].Load() == 1 && len(f.Status().Problems) == 1
	}, patience, time.Millisecond)
	assert.Equal(t, "UDPTimeoutTooLong", f.Status().Problems[0].Reason)
	assert.Equal(t, 29*time.Millisecond, idle())
}
