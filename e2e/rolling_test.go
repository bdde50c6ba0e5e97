package e2e

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// rolls is how often a Service's endpoint is replaced.
const rolls = 10

// TestSemantics_endpoints_rolling: a Service's only endpoint on this node is
// replaced ten times in a row, as a Deployment rolls: the next one becomes ready,
// the last one terminates and serves meanwhile, then goes. Of a UDP client's
// twenty datagrams a second at most one is lost each time, and no TCP client is
// refused or dropped, at any portal, of either policy, from anywhere.
func TestSemantics_endpoints_rolling(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		p := servePolicied(t, bed, lead)
		const spec = "internalTrafficPolicy: Local\nexternalTrafficPolicy: Local"
		old := serveGeneration(t, bed, 0)
		run := lead.start(t, bed.Node, p.with(spec, old.addrs), lead.detection()...)
		p.about = old.about(p.about, nodeHere)

		run.write(t, p.with(spec, old.addrs))
		p.requireMeets(t, bed, lead, external(old.name, old.name, old.name))
		var senders []*sender
		var dialers []*dialer
		for _, from := range []*nettest.Host{bed.Client, bed.Pod, bed.Node} {
			for _, k := range []service.PortalKind{service.ClusterIP, service.LoadBalancer} {
				for _, f := range service.Families() {
					senders = append(senders, keepSending(t, from, p.portal(bed, k, f)))
					dialers = append(dialers, keepDialing(t, from, p.portal(bed, k, f)))
				}
			}
		}
		requireAnswered(t, senders, old.name)
		from := nowOf(senders)
		for n := range rolls {
			next := serveGeneration(t, bed, n+1)
			p.about = next.about(p.about, nodeHere)
			run.write(t, p.with(spec, old.addrs, next.addrs))
			p.about = old.about(p.about, nodeHere+"\nconditions: {ready: false, serving: true, terminating: true}")
			run.write(t, p.with(spec, old.addrs, next.addrs))
			requireAnswered(t, senders, next.name)
			run.write(t, p.with(spec, next.addrs))
			eventually(t, func() bool { return !run.lists(t, old.addrs) }, saying("an endpoint to be gone"))
			old.close()
			requireAnswered(t, senders, next.name)
			upTo := nowOf(senders)
			requireAnswered(t, senders, next.name) // those that went out before have had their time
			for i, s := range senders {
				assert.LessOrEqual(t, len(s.lost(from[i], upTo[i])), 1, "replacement %d: lost %v of %v", n, s.lost(from[i], upTo[i]), s)
			}
			old, from = next, upTo
		}
		for _, d := range dialers {
			failed, dialed := d.stop()
			assert.Empty(t, failed, "to %s from %s by %s", d.to, d.from.Name, lead.name)
			assert.Greater(t, dialed, rolls)
		}
		run.stop(t)
	})
}

func nowOf(senders []*sender) []int {
	var all []int
	for _, s := range senders {
		all = append(all, s.now())
	}
	return all
}

// generation is one pod in both families: a server of its own.
type generation struct {
	name    string
	addrs   map[service.Family]netip.Addr
	servers []*nettest.Server
}

// serveGeneration serves the n-th, in turn at four addresses of the host back.
func serveGeneration(t *testing.T, bed *nettest.Bed, n int) *generation {
	t.Helper()
	g := &generation{name: fmt.Sprint("g", n), addrs: make(map[service.Family]netip.Addr)}
	for _, f := range service.Families() {
		g.addrs[f] = bed.Back.Addrs(f)[4+n%4]
		at := netip.AddrPortFrom(g.addrs[f], 8080).String()
		named := func(b []byte) ([]byte, bool) {
			if strings.HasPrefix(string(b), "anybody") { // as nettest asks
				return []byte(g.name), true
			}
			return append([]byte(g.name+" "), b...), true
		}
		g.servers = append(g.servers, bed.Back.ServeUDP(t, at, named), bed.Back.ServeTCP(t, at, nettest.Banner(g.name)))
	}
	return g
}

func (g *generation) close() {
	for _, s := range g.servers {
		s.Close()
	}
}

// about adds what is said of it.
func (g *generation) about(others map[netip.Addr]string, what string) map[netip.Addr]string {
	for _, a := range g.addrs {
		others[a] = what
	}
	return others
}

// lists says whether the proxy still has an endpoint at one of these addresses.
func (p *proxy) lists(t *testing.T, addrs map[service.Family]netip.Addr) bool {
	t.Helper()
	s := p.statusz(t)
	for _, port := range s.Ports {
		for _, e := range port.Endpoints {
			for _, a := range addrs {
				if netip.MustParseAddrPort(e.Addr).Addr() == a {
					return true
				}
			}
		}
	}
	return s.Pending
}

// dialer connects again and again and reads a banner.
type dialer struct {
	from   *nettest.Host
	to     string
	cancel context.CancelFunc
	done   sync.WaitGroup
	failed []string
	dialed int
}

func keepDialing(t *testing.T, from *nettest.Host, to string) *dialer {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	d := &dialer{from: from, to: to, cancel: cancel}
	d.done.Go(func() { d.dial(ctx) })
	t.Cleanup(func() { d.stop() })
	return d
}

func (d *dialer) dial(ctx context.Context) {
	for ctx.Err() == nil {
		c, err := d.from.DialFrom(ctx, &net.Dialer{Timeout: patience}, "tcp", d.to)
		if err == nil {
			_ = c.SetDeadline(time.Now().Add(patience))
			b := make([]byte, 1)
			_, err = c.Read(b)
			_ = c.Close()
		}
		if ctx.Err() != nil {
			return
		}
		d.dialed++
		if err != nil {
			d.failed = append(d.failed, err.Error())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// stop ends it and says what failed, of how many.
func (d *dialer) stop() (failed []string, dialed int) {
	d.cancel()
	d.done.Wait()
	return d.failed, d.dialed
}
