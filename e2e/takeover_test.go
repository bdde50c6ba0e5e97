package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// says waits until the proxy's log has this.
func (p *proxy) says(t *testing.T, what string) {
	t.Helper()
	eventually(t, func() bool { return p.hasEnded() || strings.Contains(p.output.String(), what) }, saying("the proxy to say %q", what))
	require.False(t, p.hasEnded(), "the proxy has ended, and did not say %q", what)
}

// takeOver starts a proxy with the file of another one that runs on its node, and
// waits until it serves.
func (p *proxy) takeOver(t *testing.T, lead way, flags ...string) *proxy {
	t.Helper()
	args := append([]string{"--file", p.file, "--takeover", "--redirect=" + lead.redirect}, flags...)
	next := launch(t, p.node, lead.env, p.file, args...)
	next.says(t, "serving ")
	return next
}

// hold opens a connection that has carried its banner.
func hold(t *testing.T, from *nettest.Host, to, banner string) net.Conn {
	t.Helper()
	c, err := from.Dial(t.Context(), "tcp", to)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(3*patience)))
	requireEcho(t, c, "", banner)
	return c
}

// TestTakeover: three times another process takes over, while clients of all kinds
// come and go. None is refused and none loses its connection: the process that has
// been told to end does not before they do. A UDP sender loses what is on its way
// each time, and never a second's twenty datagrams; who has an endpoint by affinity
// keeps it.
func TestTakeover(t *testing.T) {
	t.Parallel()
	eachRules(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		g := serveGeneration(t, bed, 0)
		var at []string
		for _, f := range service.Families() {
			at = append(at, net.JoinHostPort(g.addrs[f].String(), "8080"))
		}
		sticky := object{
			name: "sticky", clusterIPs: []string{"10.96.0.20"}, ports: []port{{"stream", service.TCP, 80, 0}}, affinity: true,
			endpoints: map[string][]string{"stream": serveNamed(t, bed.Back, "tcp", 8090, "a", "b", "c")},
		}
		p := lead.start(t, bed.Node, manifest(changing(map[string][]string{"stream": at, "datagram": at}), sticky))
		hosts := []*nettest.Host{bed.Client, bed.Pod, bed.Node}
		var senders []*sender
		var dialers []*dialer
		affine := make(map[*nettest.Host][]string)
		for _, from := range hosts {
			for _, to := range []string{"10.96.0.10:80", "[fd96::10]:80", "10.10.2.1:30080", "[fd10:2::1]:30080"} {
				dialers = append(dialers, keepDialing(t, from, to))
				senders = append(senders, keepSending(t, from, to))
			}
			var err error
			affine[from], err = answers(t, from, "tcp", "10.96.0.20:80", 2)
			require.NoError(t, err)
		}
		requireAnswered(t, senders, g.name)
		from := nowOf(senders)
		for range 3 {
			var long []net.Conn
			for _, from := range hosts {
				for _, to := range []string{"10.96.0.10:80", "[fd96::10]:80", "10.10.2.1:30080", "[fd10:2::1]:30080"} {
					long = append(long, hold(t, from, to, "g0\n"))
				}
			}
			next := p.takeOver(t, lead)
			assert.Contains(t, next.output.String(), "taking over from process")
			p.signal(t, syscall.SIGTERM)
			requireAnswered(t, senders, g.name)
			upTo := nowOf(senders)
			requireAnswered(t, senders, g.name) // those that went out before have had their time
			for i, s := range senders {
				assert.Less(t, len(s.lost(from[i], upTo[i])), 20, "lost %v of %v", s.lost(from[i], upTo[i]), s)
			}
			from = upTo
			for _, c := range long {
				requireEcho(t, c, "still here", "still here")
			}
			require.False(t, p.hasEnded(), "connections are open")
			for _, c := range long {
				require.NoError(t, c.Close())
			}
			assert.Zero(t, p.exitCode(t), "the last connection is closed")
			for _, host := range hosts {
				got, err := answers(t, host, "tcp", "10.96.0.20:80", 2)
				require.NoError(t, err)
				assert.Equal(t, affine[host], got, "affinity of %s", host.Name)
			}
			next.expectProbes(t, 200, 200, 200)
			assert.Empty(t, next.problems(t))
			p = next
		}
		for _, d := range dialers {
			failed, dialed := d.stop()
			assert.Empty(t, failed, "to %s from %s by %s", d.to, d.from.Name, lead.name)
			assert.Positive(t, dialed)
		}
	})
}

// TestTakeover_whoTookOverIsGone: the process that had yielded serves again, as of
// now, and everything that only one process may have is its again.
func TestTakeover_whoTookOverIsGone(t *testing.T) {
	t.Parallel()
	eachRules(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		tcp := serveNamed(t, bed.Back, "tcp", 8080, "a", "b", "c")
		udp := serveNamed(t, bed.Back, "udp", 8080, "a", "b", "c")
		with := func(n int) string {
			return manifest(changing(map[string][]string{"stream": tcp[2*n : 2*n+2], "datagram": udp[2*n : 2*n+2]}))
		}
		requireServed := func(name string) {
			t.Helper()
			for _, from := range []*nettest.Host{bed.Client, bed.Pod, bed.Node} {
				for _, to := range []string{"10.96.0.10:80", "10.10.2.1:30080", "[fd10:2::1]:30080"} {
					requireAnswers(t, from, target{"tcp", to}, name)
					requireAnswers(t, from, target{"udp", to}, name)
				}
			}
		}
		first := lead.start(t, bed.Node, with(0))
		second := first.takeOver(t, lead)
		third := second.takeOver(t, lead)
		first.write(t, with(1))
		requireServed("b")
		first.says(t, "takes over")
		second.stop(t) // the third serves, so the first has nothing to do
		requireServed("b")
		third.signal(t, os.Kill)
		third.exitCode(t)
		first.says(t, "serving this node again")
		requireServed("b")
		first.write(t, with(2))
		requireServed("c")
		first.expectProbes(t, 200, 200, 200)
		assert.Empty(t, first.problems(t))
		assert.NotContains(t, first.output.String(), "rules are being restored", "it knows that they are not its own any more")
		_, err := bed.Node.Listen("tcp", "10.10.2.1:30080")
		require.ErrorIs(t, err, syscall.EADDRINUSE, "the node port is held")
		first.stop(t)
	})
}

// TestTakeover_byAnotherWay: the next process has rules of another kind, and none of
// the first's are left; when it is gone, none of its own are.
func TestTakeover_byAnotherWay(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft", "iptables-nft", "iptables-legacy")
	eachRules(t, func(t *testing.T, bed *nettest.Bed, own way) {
		served := func() {
			t.Helper()
			for _, to := range []string{"10.96.0.10:80", "10.10.2.1:30080", "[fd10:2::1]:30080"} {
				requireAnswers(t, bed.Client, target{"tcp", to}, "a")
			}
		}
		has := func(lead way) bool {
			if lead.redirect == "nftables" {
				return strings.Contains(bed.Node.Output(t, "nft", "list", "tables"), "table ip userspace-proxy\n")
			}
			return strings.Contains(strings.Join(iptablesRules(t, bed.Node, lead.name), "\n"), "USERSPACE-PROXY")
		}
		first, c := connected(t, bed, own)
		for _, lead := range rulesWays(t) {
			if lead.name == own.name {
				continue
			}
			second := first.takeOver(t, lead)
			served()
			eventually(t, func() bool { return has(lead) && !has(own) }, saying("%s alone", lead.name))
			requireEcho(t, c, "still here", "still here")
			second.signal(t, os.Kill)
			second.exitCode(t)
			first.says(t, "serving this node again")
			served()
			eventually(t, func() bool { return !has(lead) && has(own) }, saying("%s alone again", own.name))
			requireEcho(t, c, "still here", "still here")
		}
	})
}

// TestTakeover_fromOneThatIsStopping: it has got its signal, and a connection is
// open. Another process may still take over, for those who come meanwhile.
func TestTakeover_fromOneThatIsStopping(t *testing.T) {
	t.Parallel()
	eachRules(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		p, c := connected(t, bed, lead, "--drain-timeout=1h")
		p.signal(t, syscall.SIGTERM)
		p.says(t, "stopping when the last of ") // which is ours, or one of connected's that is just ending
		next := p.takeOver(t, lead)
		requireAnswers(t, bed.Client, target{"tcp", "10.10.2.1:30080"}, "a")
		requireEcho(t, c, "still here", "still here")
		require.False(t, p.hasEnded())
		require.NoError(t, c.Close())
		assert.Zero(t, p.exitCode(t))
		requireAnswers(t, bed.Client, target{"tcp", "10.10.2.1:30080"}, "a")
		next.stop(t)
	})
}

// TestTakeover_notAskedFor: two processes would undo each other's rules. The second
// says so, and changes nothing.
func TestTakeover_notAskedFor(t *testing.T) {
	t.Parallel()
	eachRules(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		p, c := connected(t, bed, lead)
		rules, addrs := ruleset(t, bed.Node), addressesOf(t, bed.Node)
		got := command(t, bed.Node, slices.Concat(os.Environ(), lead.env), "run", "--file", p.file, "--redirect="+lead.redirect,
			"--healthz-bind-address=127.0.0.1:1", "--metrics-bind-address=127.0.0.1:2")
		assert.Equal(t, 1, got.code)
		assert.Contains(t, got.stderr, "another userspace-proxy serves this node (process ")
		assert.Contains(t, got.stderr, "end it first, or take over from it with --takeover\n")
		assert.Equal(t, rules, ruleset(t, bed.Node))
		assert.Equal(t, addrs, addressesOf(t, bed.Node))
		requireEcho(t, c, "still here", "still here")
	})
}

// requireServesOn: the first process, whose connection c is, is again what it was.
func requireServesOn(t *testing.T, bed *nettest.Bed, first *proxy, c net.Conn) {
	t.Helper()
	first.says(t, "serving this node again")
	requireEcho(t, c, "still here", "still here")
	requireAnswers(t, bed.Client, target{"tcp", "10.10.2.1:30080"}, "a")
	first.expectProbes(t, 200, 200, 200)
}

// TestTakeover_cannotStart: it has asked, and then finds that it cannot do its work.
func TestTakeover_cannotStart(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft")
	bed := nettest.New(t)
	p, c := connected(t, bed, way{redirect: "nftables"})
	got := command(t, bed.Node, append(os.Environ(), "PATH="+t.TempDir()), "run", "--file", p.file, "--redirect=nftables", "--takeover")
	assert.Equal(t, 1, got.code)
	assert.Contains(t, got.stderr, "nft")
	requireServesOn(t, bed, p, c)
}

// TestTakeover_noRoomForListeners: where a process cannot have as many listeners as
// the one that serves, it does not take over.
func TestTakeover_noRoomForListeners(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft")
	bed := nettest.New(t)
	p, c := connected(t, bed, way{redirect: "nftables"})
	got := command(t, bed.Node, os.Environ(), "run", "--file", p.file, "--redirect=nftables", "--takeover", "--proxy-port-range=20000-20000")
	assert.Equal(t, 1, got.code)
	assert.Contains(t, got.stderr, "give a wider --proxy-port-range")
	requireServesOn(t, bed, p, c)
}

// TestTakeover_fromOneThatHangs: nobody waits for ever for a process that does
// nothing. When it goes on it serves on.
func TestTakeover_fromOneThatHangs(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft")
	bed := nettest.New(t)
	p, c := connected(t, bed, way{redirect: "nftables"})
	p.signal(t, syscall.SIGSTOP)
	got := command(t, bed.Node, os.Environ(), "run", "--file", p.file, "--redirect=nftables", "--takeover")
	p.signal(t, syscall.SIGCONT)
	assert.Equal(t, 1, got.code)
	assert.Contains(t, got.stderr, "does not yield")
	requireServesOn(t, bed, p, c)
}

// TestTakeover_transparent: connections from clients' own addresses go on too, also
// where client and endpoint are on one bridge, and the endpoint speaks while the next
// process starts.
func TestTakeover_transparent(t *testing.T) {
	t.Parallel()
	eachRules(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		bridged := bed.AddBridge(t, 2)
		pairs := []struct {
			client, endpoint *nettest.Host
			node             string
		}{{bed.Pod, bed.Back, "node-b"}, {bridged[1], bridged[0], "node-a"}, {bed.Client, bed.Pod, "node-a"}}
		var all []seen
		var objects []object
		for i, pair := range pairs {
			all = append(all, serveSeen(t, i+1, "", map[*nettest.Host]string{pair.endpoint: pair.node}))
			objects = append(objects, all[i].object)
		}
		p := lead.start(t, bed.Node, manifest(objects...), transparentFlags()...)
		var streams []*stream
		for i, pair := range pairs {
			for _, f := range service.Families() {
				requireSeen(t, pair.client, all[i].on[f], pair.client.Addr(f))
				streams = append(streams, openStream(t, pair.client, all[i].on[f]))
			}
		}
		next := p.takeOver(t, lead, transparentFlags()...)
		p.signal(t, syscall.SIGTERM)
		for i, pair := range pairs {
			for _, f := range service.Families() {
				requireSeen(t, pair.client, all[i].on[f], pair.client.Addr(f))
			}
		}
		for _, s := range streams {
			s.goOn(t)
		}
		require.False(t, p.hasEnded())
		for _, s := range streams {
			s.end(t)
		}
		assert.Zero(t, p.exitCode(t))
		next.stop(t)
	})
}

// stream is a connection on which bytes are always on their way, in both directions.
type stream struct {
	conn   net.Conn
	echoed atomic.Int64
	done   chan error
}

func openStream(t *testing.T, from *nettest.Host, to string) *stream {
	t.Helper()
	conn, err := from.Dial(t.Context(), "tcp", to)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(3*patience)))
	s := &stream{conn: conn, done: make(chan error, 1)}
	go func() {
		lines := bufio.NewReader(conn)
		_, err := lines.ReadString('\n') // the banner
		for n := 0; err == nil; n++ {
			line := fmt.Sprintln("line", n)
			if _, err = io.WriteString(conn, line); err != nil {
				break
			}
			var got string
			if got, err = lines.ReadString('\n'); err == nil && got != line {
				err = fmt.Errorf("got %q, want %q", got, line)
			}
			s.echoed.Add(1)
		}
		s.done <- err
	}()
	return s
}

// goOn waits until bytes have come back that were sent since it was called.
func (s *stream) goOn(t *testing.T) {
	t.Helper()
	before := s.echoed.Load()
	eventually(t, func() bool { return s.echoed.Load() > before+1 || len(s.done) > 0 }, saying("a connection to go on"))
	if len(s.done) > 0 {
		require.NoError(t, <-s.done)
	}
}

func (s *stream) end(t *testing.T) {
	t.Helper()
	require.NoError(t, s.conn.Close())
	require.ErrorIs(t, <-s.done, net.ErrClosed)
}

// TestTakeover_sourceIsSilent: what was served is served on by a process that cannot
// hear what there is, also when the one that knew has ended.
func TestTakeover_sourceIsSilent(t *testing.T) {
	t.Parallel()
	eachRules(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		p, c := connected(t, bed, lead)
		require.NoError(t, c.Close())
		next := launch(t, bed.Node, lead.env, "", "--etcd-servers=http://127.0.0.1:1", "--startup-grace=1s", "--takeover", "--redirect="+lead.redirect)
		next.says(t, "going on without it, removing nothing")
		next.says(t, "serving ")
		p.stop(t)
		for _, to := range []string{"10.96.0.10:80", "[fd96::10]:80", "10.10.2.1:30080"} {
			requireAnswers(t, bed.Client, target{"tcp", to}, "a")
		}
		next.stop(t)
	})
}
