package e2e

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	discovery "k8s.io/api/discovery/v1"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// rig is a proxy that is kept running through one fault after the other of the
// source that it follows. Of its two Services one is left alone, and must be
// served at any time; the other one changes.
type rig struct {
	bed      *nettest.Bed
	flags    []string // that lead a proxy to the source
	from     origin
	proxy    *proxy
	tcp, udp []string // endpoints, two addresses each: a, b
	turn     int
	weight   weight
}

func newRig(t *testing.T, bed *nettest.Bed, from origin) *rig {
	t.Helper()
	r := &rig{
		bed: bed, from: from,
		tcp: serveNamed(t, bed.Back, "tcp", 8080, "a", "b"),
		udp: serveNamed(t, bed.Back, "udp", 8080, "a", "b"),
	}
	r.putSteady(t)
	r.change(t)
	return r
}

// begin starts a proxy that flags lead to the source.
func (r *rig) begin(t *testing.T, flags ...string) {
	t.Helper()
	// UDP flows hold descriptors until they expire, and must not on a busy machine
	// before an answer is there.
	r.flags = append(slices.Clone(flags), "--hostname-override="+nodeName, "--min-sync-period=10ms", "--udp-timeout=4s", "--profiling", "--log-level=info")
	r.proxy = startFrom(t, r.bed.Node, r.flags...)
	r.follows(t)
	tr := ask(t, r.bed.Client, "a", steadyTargets()...)
	r.change(t)
	r.follows(t)
	tr.end(t)
	r.weight = r.settled(t)
}

// putSteady writes the Service that is left alone.
func (r *rig) putSteady(t *testing.T) {
	t.Helper()
	r.from.put(t, steady(map[string][]string{"stream": r.tcp[:2], "datagram": r.udp[:2]}))
}

// settled is what the proxy holds at most when that changes no more, but for the
// descriptor of a moment.
func (r *rig) settled(t *testing.T) weight {
	t.Helper()
	const lately = 50
	var seen []weight
	descriptors := func() (least, most int) {
		var all []int
		for _, w := range seen[max(0, len(seen)-lately):] {
			all = append(all, w.descriptors)
		}
		return slices.Min(all), slices.Max(all)
	}
	eventuallyWithin(t, recovery, func() bool {
		time.Sleep(100 * time.Millisecond) // all of them take longer than flows live
		seen = append(seen, r.proxy.weigh(t))
		least, most := descriptors()
		return len(seen) >= lately && most-least <= 1
	}, func() string { return fmt.Sprintf("what the proxy holds to stay the same; it was %v", seen) })
	w := seen[len(seen)-1]
	_, w.descriptors = descriptors()
	t.Logf("at rest the proxy holds %+v", w)
	return w
}

// change has the other endpoint serve the Service that changes.
func (r *rig) change(t *testing.T) {
	t.Helper()
	r.turn = 1 - r.turn
	i, j := 2*r.turn, 2*r.turn+2
	r.from.put(t, changing(map[string][]string{"stream": r.tcp[i:j], "datagram": r.udp[i:j]}))
}

// follows waits until traffic is led by the last change.
func (r *rig) follows(t *testing.T) {
	t.Helper()
	want := []string{"a", "b"}[r.turn]
	for _, to := range changingTargets() {
		var got string
		var err error
		eventuallyWithin(t, recovery, func() bool {
			got, err = answer(t.Context(), r.bed.Client, to)
			return err == nil && got == want
		}, func() string {
			return fmt.Sprintf("%s to answer at %v; last: %q, %v; the proxy says %+v", want, to, got, err, r.proxy.status(t).Sources)
		})
	}
}

// fault is one thing that may happen. After it the proxy is as one that has just
// been started, follows the next change, and holds no more than before.
type fault struct {
	name string
	// do lets it happen and ends it.
	do func(*testing.T, *rig)
	// loses is whether the Service that is left alone may go with it.
	loses bool
}

func (r *rig) suffer(t *testing.T, f fault) {
	t.Helper()
	passed := t.Run(f.name, func(t *testing.T) {
		var tr *traffic
		if !f.loses {
			tr = ask(t, r.bed.Client, "a", steadyTargets()...)
		}
		f.do(t, r)
		requireAsFresh(t, r.proxy, r.bed.Pod, r.flags...)
		r.change(t)
		r.follows(t)
		if tr != nil {
			tr.end(t)
		}
		r.proxy.requireNoGrowth(t, r.weight)
		assert.Empty(t, r.proxy.status(t).Sources[0].Error)
	})
	require.True(t, passed, "what comes next would only fail by it too")
}

// requireFault waits until the proxy says that its source has failed.
func (r *rig) requireFault(t *testing.T) {
	t.Helper()
	eventuallyWithin(t, recovery, func() bool { return r.proxy.status(t).Sources[0].Error != "" }, saying("the proxy to say that its source has failed"))
	t.Logf("the proxy says: %s", r.proxy.status(t).Sources[0].Error)
}

// burst is updates of slices, by several writers at once, each of which changes
// that of a Service of its own, which is gone in the end.
func (r *rig) burst(t *testing.T, write func(*discovery.EndpointSlice) error) {
	t.Helper()
	const updates, writers = 10000, 8
	var all sync.WaitGroup
	errs := make([]error, writers)
	for w := range writers {
		o := object{
			name: fmt.Sprintf("burst-%d", w), clusterIPs: []string{fmt.Sprintf("10.96.1.%d", w)},
			ports: []port{{"stream", service.TCP, 80, 0}}, endpoints: map[string][]string{"stream": {"10.10.2.2:80"}},
		}
		r.from.put(t, o)
		_, decoded := o.decoded(t)
		all.Go(func() {
			for n := 0; n < updates/writers && errs[w] == nil; n++ {
				decoded[0].Endpoints[0].Addresses[0] = fmt.Sprintf("10.10.2.%d", 2+n%8)
				errs[w] = write(decoded[0])
			}
		})
	}
	all.Wait()
	require.NoError(t, errors.Join(errs...))
	requireAsFresh(t, r.proxy, r.bed.Pod, r.flags...)
	for w := range writers {
		r.from.remove(t, fmt.Sprintf("burst-%d", w))
	}
}

// cut has back treat packets of a server there, from and to others, as nft says
// ("drop"), until mend is called.
func cut(t *testing.T, bed *nettest.Bed, serverPort, verdict string) (mend func()) {
	t.Helper()
	bed.Back.Output(t, "sh", "-c", `nft -f - <<END
table inet outage {
	chain in {
		type filter hook input priority -300; policy accept;
		iifname eth0 tcp dport `+serverPort+` `+verdict+`
	}
	chain out {
		type filter hook output priority -300; policy accept;
		oifname eth0 tcp sport `+serverPort+` `+verdict+`
	}
}
END`)
	return func() {
		t.Helper()
		bed.Back.Output(t, "nft", "delete", "table", "inet", "outage")
	}
}

// dropped are faults of a network between the proxy and a server, which has
// something happen to it, or nothing, meanwhile.
func dropped(name, serverPort string, meanwhile func(*testing.T, *rig)) fault {
	return fault{name: name, do: func(t *testing.T, r *rig) {
		mend := cut(t, r.bed, serverPort, "drop")
		r.change(t)
		meanwhile(t, r)
		r.change(t)
		r.change(t)
		mend()
		r.follows(t)
	}}
}

// hung is a server that does nothing until the proxy says so.
func hung(name string, server func() *process) fault {
	return fault{name: name, do: func(t *testing.T, r *rig) {
		p := server()
		p.signal(t, syscall.SIGSTOP)
		r.requireFault(t)
		p.signal(t, syscall.SIGCONT)
	}}
}

// refused is a moment at which connections to a server are reset.
func refused(t *testing.T, bed *nettest.Bed, serverPort string) {
	t.Helper()
	mend := cut(t, bed, serverPort, "reject with tcp reset")
	time.Sleep(300 * time.Millisecond) // packets go both ways in it
	mend()
}
