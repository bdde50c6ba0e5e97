package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// fewDescriptors is a program that runs another with a low limit on open files.
func fewDescriptors() []string {
	return []string{"sh", "-c", `ulimit -n 250 && exec "$0" "$@"`, os.Getenv(binaryVariable)}
}

// TestChaos: Services and slices change, rules are wiped, endpoints fail,
// sockets are closed and descriptors run out, all under load. No byte is altered.
// When it is over, what is served and the rules are what a fresh start makes of
// the same files, and nothing has leaked. CHAOS is how long it lasts, CHAOS_SEED
// repeats one.
func TestChaos(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft", "ip", "ss")
	seed := seedOf(t, "CHAOS_SEED")
	lasts := 15 * time.Second
	if text := os.Getenv("CHAOS"); text != "" {
		var err error
		lasts, err = time.ParseDuration(text)
		require.NoError(t, err, "CHAOS")
	}
	lead := way{name: "nftables", redirect: "nftables"}
	bed := nettest.New(t)
	w := &walk{dir: t.TempDir(), node: bed.Node, random: rand.New(rand.NewPCG(seed, 6))}
	w.tcp = serveNamed(t, bed.Back, "tcp", 8080, "a", "b")
	w.udp = serveNamed(t, bed.Back, "udp", 8080, "a", "b")
	always := object{
		name: "always", clusterIPs: []string{"10.96.0.20"},
		ports:     []port{{"stream", service.TCP, 80, 0}, {"datagram", service.UDP, 80, 0}},
		endpoints: map[string][]string{"stream": {"10.10.2.2:7000", "10.10.2.3:7000"}, "datagram": {"10.10.2.2:8080"}},
	}
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, "always.yaml"), []byte(manifest(always)), 0o644))
	fails := bed.Back.ServeTCP(t, "10.10.2.3:7000", nettest.Echo)
	bed.Back.ServeTCP(t, "10.10.2.2:7000", nettest.Echo)

	begin := func() *proxy {
		p := launchBy(t, bed.Node, fewDescriptors(), nil, w.dir, "--file", w.dir, "--redirect=nftables",
			"--min-sync-period=10ms", "--sync-period=2s", "--udp-timeout=1s", "--drain-timeout=0s")
		eventually(t, func() bool { return p.hasEnded() || p.healthy() }, saying("a healthy proxy"))
		require.False(t, p.hasEnded())
		return p
	}
	p := begin()
	ctx, calm := context.WithTimeout(t.Context(), lasts)
	defer calm()
	l := &load{client: bed.Client}
	for range 6 {
		l.workers.Go(func() { l.streams(ctx, t) })
		l.workers.Go(func() { l.datagrams(ctx, t) })
	}
	l.workers.Go(func() { l.crowds(ctx) })

	for ctx.Err() == nil {
		switch w.random.IntN(12) {
		case 0:
			_, _ = bed.Node.Command(ctx, "nft", "delete table ip userspace-proxy").CombinedOutput() // or they are just being written
		case 1:
			fails.Close()
		case 2:
			fails.Close()
			fails = bed.Back.ServeTCP(t, "10.10.2.3:7000", nettest.Echo)
		case 3:
			_, _ = bed.Node.Command(ctx, "ss", "-K", "-Htln", "src", "169.254.77.1").CombinedOutput()
		default:
			w.step(t)
		}
		time.Sleep(time.Duration(w.random.IntN(200)) * time.Millisecond)
	}
	l.workers.Wait()
	fails.Close()
	bed.Back.ServeTCP(t, "10.10.2.3:7000", nettest.Echo)
	t.Logf("%d streams and %d datagrams came back whole; %d streams were cut", l.whole.Load(), l.answered.Load(), l.cut.Load())
	assert.Positive(t, l.whole.Load())
	assert.Positive(t, l.answered.Load())

	p.takesNoMore(t)
	requireEchoed(t, bed.Client)
	eventually(t, func() bool {
		s := p.statusz(t)
		return s.ConnectionsOpen == 0 && s.FlowsOpen == 0 && s.Descriptors.Traffic == 0
	}, saying("an end of connections and flows"))
	was := settledStateOf(t, p, lead)
	goroutines := p.metric(t, "go_goroutines")
	pipes, others := p.pipesAndOthers(t)
	p.stop(t)

	fresh := begin()
	fresh.takesNoMore(t)
	requireEchoed(t, bed.Client)
	requireState(t, fresh, lead, was)
	const slack = 6 // of who asks for this
	assert.LessOrEqual(t, goroutines, fresh.metric(t, "go_goroutines")+slack)
	eventually(t, func() bool { return fresh.statusz(t).Descriptors.Traffic == 0 }, saying("an end of connections"))
	freshPipes, freshOthers := fresh.pipesAndOthers(t)
	assert.LessOrEqual(t, others, freshOthers+slack)
	const spare = 16 // descriptors of pipes that each loop keeps for the next bulk
	assert.LessOrEqual(t, pipes, freshPipes+spare*runtime.NumCPU())
	fresh.stop(t)
}

// pipesAndOthers are the descriptors that the process has open.
func (p *proxy) pipesAndOthers(t *testing.T) (pipes, others int) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join(dir, e.Name()))
		switch {
		case err != nil: // closed meanwhile
		case strings.HasPrefix(to, "pipe:"):
			pipes++
		default:
			others++
		}
	}
	return pipes, others
}

// requireEchoed waits until a stream comes back whole.
func requireEchoed(t *testing.T, client *nettest.Host) {
	t.Helper()
	eventually(t, func() bool {
		got, err := client.ExchangeTCP(t.Context(), "10.96.0.20:80", "ping")
		return err == nil && got == "ping"
	}, saying("an echo"))
}

// load is clients that bear anything but an altered byte.
type load struct {
	client               *nettest.Host
	workers              sync.WaitGroup
	whole, cut, answered atomic.Int64
}

// streams sends blocks and has them echoed, one connection after the other.
func (l *load) streams(ctx context.Context, t *testing.T) {
	block := make([]byte, 200_000)
	for i := range block {
		block[i] = byte(rand.Uint32())
	}
	for ctx.Err() == nil {
		c, err := l.dial(ctx)
		if err != nil {
			l.cut.Add(1)
			time.Sleep(10 * time.Millisecond)
			continue
		}
		sent := block[:1+rand.IntN(len(block))]
		go func() { _, _ = c.Write(sent) }()
		got := make([]byte, len(sent))
		n, err := io.ReadFull(c, got)
		_ = c.Close()
		assert.True(t, bytes.Equal(sent[:n], got[:n]), "a byte is another")
		if err != nil {
			l.cut.Add(1)
		} else {
			l.whole.Add(1)
		}
	}
}

func (l *load) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	c, err := l.client.Dial(ctx, "tcp", "10.96.0.20:80")
	if err == nil {
		err = c.SetDeadline(time.Now().Add(3 * time.Second))
	}
	return c, err
}

// datagrams asks, from another port each time.
func (l *load) datagrams(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil {
		c, err := l.client.Dial(ctx, "udp", "10.96.0.20:80")
		if err != nil {
			continue
		}
		for range 5 {
			_, _ = io.WriteString(c, "who?")
			b := make([]byte, 100)
			_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			if n, err := c.Read(b); err == nil {
				assert.Equal(t, "a who?", string(b[:n]))
				l.answered.Add(1)
			}
		}
		_ = c.Close()
	}
}

// crowds opens more connections than there are descriptors for, and leaves.
func (l *load) crowds(ctx context.Context) {
	for ctx.Err() == nil {
		var all []net.Conn
		for range 100 {
			if c, err := l.dial(ctx); err == nil {
				all = append(all, c)
			}
		}
		time.Sleep(200 * time.Millisecond)
		for _, c := range all {
			_ = c.Close()
		}
		time.Sleep(2 * time.Second)
	}
}
