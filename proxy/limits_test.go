package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// from connects from a loopback address and waits for the backend's first line.
// A connection that is reset is syscall.ECONNRESET, however far it came.
func from(t *testing.T, client netip.Addr, to netip.AddrPort) (*net.TCPConn, error) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: client.AsSlice()}, Timeout: patience}
	conn, err := d.Dial("tcp", to.String())
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	if _, err = bufio.NewReader(conn).ReadString('\n'); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

// admitted opens connections from a client, and fails if one is refused.
func admitted(t *testing.T, n int, client netip.Addr, to netip.AddrPort) []*net.TCPConn {
	t.Helper()
	var all []*net.TCPConn
	for range n {
		conn, err := from(t, client, to)
		require.NoError(t, err)
		all = append(all, conn)
	}
	return all
}

func requireTurnedAway(t *testing.T, client netip.Addr, to netip.AddrPort) {
	t.Helper()
	_, err := from(t, client, to)
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

func (f *fixture) turnedAway(why string) int {
	return int(testutil.ToFloat64(f.config.Metrics.refused[why]))
}

// logged is a configuration whose log, at info, is kept.
func logged(c Config) (Config, *bytes.Buffer) {
	out := new(bytes.Buffer)
	log := logrus.New()
	log.SetOutput(out)
	c.Log = log
	return c, out
}

func TestMaxConnectionsOfAll(t *testing.T) {
	t.Parallel()
	c, out := logged(Config{MaxConnections: 3})
	f := start(t, c)
	other := netip.AddrPortFrom(ownAddr(), 80)
	a, b := f.port(named(t, "a")), f.portNamed("other", other, named(t, "b"))
	f.update(a, b)
	open := admitted(t, 2, ownAddr(), f.portal)
	open = append(open, admitted(t, 1, ownAddr(), other)...)
	for range 20 {
		requireTurnedAway(t, ownAddr(), f.portal)
		requireTurnedAway(t, ownAddr(), other)
	}
	assert.Equal(t, 40, f.turnedAway("max_connections"))

	require.NoError(t, open[0].Close())
	require.Eventually(t, func() bool { return f.shared.tcp.open() == 2 }, patience, time.Millisecond)
	admitted(t, 1, ownAddr(), other)
	requireTurnedAway(t, ownAddr(), f.portal)
	f.stop()
	<-f.done
	f.requireSaidOnce(strings.Count(out.String(), "\n"), out.String())
	assert.Contains(t, out.String(), "--max-connections allows")
}

func TestMaxConnectionsPerClient(t *testing.T) {
	t.Parallel()
	f := start(t, Config{MaxPerClient: 2})
	other := netip.AddrPortFrom(ownAddr(), 80)
	f.update(f.port(named(t, "a")), f.portNamed("other", other, named(t, "b")))
	greedy, modest := ownAddr(), ownAddr()
	open := admitted(t, 1, greedy, f.portal)
	open = append(open, admitted(t, 1, greedy, other)...)
	requireTurnedAway(t, greedy, f.portal)
	requireTurnedAway(t, greedy, other)
	admitted(t, 2, modest, f.portal)
	assert.Equal(t, 2, f.turnedAway("max_connections_per_client"))
	assert.Equal(t, 4, f.shared.tcp.open(), "who was turned away is not counted")

	require.NoError(t, open[1].Close())
	require.Eventually(t, func() bool { return f.shared.tcp.open() == 3 }, patience, time.Millisecond)
	admitted(t, 1, greedy, f.portal)
	requireTurnedAway(t, greedy, f.portal)
}

// The limit is one for all ports of the Service, and no other Service's.
func TestMaxConnectionsOfAService(t *testing.T) {
	t.Parallel()
	f := start(t, Config{})
	ports := make([]service.Port, 3)
	for i, name := range []string{"web", "web", "free"} {
		ports[i] = f.portNamed(name, netip.AddrPortFrom(ownAddr(), 80), named(t, "a"))
		ports[i].Port = fmt.Sprint("p", i)
	}
	web, alsoWeb, free := ports[0].Portals[0].Addr, ports[1].Portals[0].Addr, ports[2].Portals[0].Addr
	limit := func(most int) {
		t.Helper()
		ports[0].MaxConnections, ports[1].MaxConnections = most, most
		f.update(ports...)
		require.Eventually(t, func() bool { return !f.Status().Pending }, patience, time.Millisecond)
	}
	limit(2)
	open := admitted(t, 1, ownAddr(), web)
	open = append(open, admitted(t, 1, ownAddr(), alsoWeb)...)
	requireTurnedAway(t, ownAddr(), web)
	requireTurnedAway(t, ownAddr(), alsoWeb)
	admitted(t, 3, ownAddr(), free)
	assert.Equal(t, 2, f.turnedAway("max_connections_of_service"))
	for _, p := range f.Status().Ports {
		assert.Equal(t, map[bool]int{true: 2, false: 0}[strings.HasPrefix(p.Name, "default/web")], p.Most, p.Name)
	}

	limit(3) // it changes while connections are open
	open = append(open, admitted(t, 1, ownAddr(), alsoWeb)...)
	limit(1)
	requireTurnedAway(t, ownAddr(), web)

	// Gone and made anew, while its connections live on.
	f.update(ports[2])
	f.update(ports...)
	requireTurnedAway(t, ownAddr(), web)
	for _, conn := range open {
		require.NoError(t, conn.Close())
	}
	require.Eventually(t, func() bool { return f.shared.tcp.open() == 3 }, patience, time.Millisecond)
	admitted(t, 1, ownAddr(), web)
	limit(0)
	admitted(t, 5, ownAddr(), web)
}

// Ten thousand short connections: none is lost or counted wrong by whatever
// loop it passes, and at info nobody hears of it; when most are turned away,
// the log has a handful of lines.
//
// It is not run beside others: they would have to wait.
func TestCase49_TenThousandShortConnections(t *testing.T) {
	for name, most := range map[string]int{"served": 0, "turned away": 1} {
		t.Run(name, func(t *testing.T) {
			c, out := logged(Config{MaxPerClient: most})
			f := start(t, c)
			f.serve(backend(t, func(conn *net.TCPConn) { _, _ = io.Copy(conn, conn) }))
			client := ownAddr()
			var workers sync.WaitGroup
			const each, many = 625, 16
			for range many {
				workers.Go(func() {
					for range each {
						ping(t, client, f.portal, most == 0)
					}
				})
			}
			workers.Wait()
			f.drained()
			served := int(testutil.ToFloat64(f.config.Metrics.ended["eof"])) +
				int(testutil.ToFloat64(f.config.Metrics.ended["reset"]))
			refused := f.turnedAway("max_connections_per_client")
			assert.Equal(t, each*many, served+refused, "%d served, %d turned away", served, refused)
			f.shared.limits.mu.Lock()
			assert.Empty(t, f.shared.limits.clients)
			f.shared.limits.mu.Unlock()
			f.stop()
			<-f.done
			lines := strings.Count(out.String(), "\n")
			if most == 0 {
				assert.Zero(t, refused)
				assert.Zero(t, lines, out)
			} else {
				assert.Positive(t, refused)
				assert.LessOrEqual(t, lines, 1+int(time.Since(f.began)/(10*time.Second)), out)
			}
		})
	}
}

// ping makes a short connection, which may be reset unless it must be served.
func ping(t *testing.T, client netip.Addr, to netip.AddrPort, must bool) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: client.AsSlice()}, Timeout: patience, ControlContext: leavePortToConnect}
	conn, err := d.Dial("tcp", to.String())
	if err == nil {
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, err = io.WriteString(conn, "ping")
		if err == nil {
			_, err = io.ReadFull(conn, make([]byte, 4))
		}
		_ = conn.(*net.TCPConn).SetLinger(0) // no TIME_WAIT: ports run out otherwise
	}
	if must || !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		assert.NoError(t, err)
	}
}

// Whatever comes and goes, from however many sides at once: in the end nothing
// is counted, and no limit was ever exceeded.
func TestLimitsCountRight(t *testing.T) {
	t.Parallel()
	l := newLimits(20, 3)
	services := []*openCount{new(openCount), new(openCount)}
	services[0].most.Store(5)
	clients := []netip.Addr{ownAddr(), ownAddr(), ownAddr(), netip.MustParseAddr("2001:db8::1")}
	var workers sync.WaitGroup
	for i := range 8 {
		workers.Go(func() {
			type admission struct {
				client netip.Addr
				of     *openCount
			}
			r := rand.New(rand.NewPCG(uint64(i), 1))
			var mine []admission
			for range 20_000 {
				if len(mine) > 0 && r.IntN(2) == 0 {
					last := len(mine) - 1
					l.release(mine[last].client, mine[last].of)
					mine = mine[:last]
					continue
				}
				a := admission{clients[r.IntN(len(clients))], services[r.IntN(2)]}
				if l.admit(a.client, a.of) == "" {
					mine = append(mine, a)
				}
				if l.all.open.Load() > 20 || services[0].open.Load() > 5 {
					t.Error("a limit was exceeded")
					return
				}
			}
			for _, a := range mine {
				l.release(a.client, a.of)
			}
		})
	}
	workers.Wait()
	assert.Zero(t, l.all.open.Load())
	assert.Zero(t, services[0].open.Load())
	assert.Zero(t, services[1].open.Load())
	assert.Nil(t, l.clients)
}

func TestLimitsTakeNoMemoryPerConnection(t *testing.T) {
	l := newLimits(100, 100)
	of, client := l.service(service.Key{}), ownAddr()
	require.Empty(t, l.admit(ownAddr(), of)) // one that stays
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		if l.admit(client, of) == "" {
			l.release(client, of)
		}
	}))
}
