package demo

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/userspace-proxy/userspace-proxy/config/file"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience ends a test that has failed.
const patience = 30 * time.Second

func begin(t *testing.T) *Demo {
	t.Helper()
	d, err := Start()
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, d.Close())
		assert.NoDirExists(t, d.Dir)
	})
	return d
}

func (d *Demo) backend(t *testing.T, name string) *backend {
	t.Helper()
	for _, b := range d.backends {
		if b.name == name {
			return b
		}
	}
	require.Fail(t, "no backend", name)
	return nil
}

func dial(t *testing.T, network string, to netip.AddrPort) net.Conn {
	t.Helper()
	conn, err := net.DialTimeout(network, to.String(), patience)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	return conn
}

func TestStart(t *testing.T) {
	t.Parallel()
	d := begin(t)
	var names []string
	for _, s := range d.Services {
		names = append(names, fmt.Sprintf("%s %s %v", s.Name, s.Protocol, s.Backends))
		assert.NotEmpty(t, s.About, s.Name)
		assert.True(t, s.Addr.Addr().IsLoopback())
	}
	assert.Equal(t, []string{
		"web TCP [web-1 web-2 web-3]",
		"sticky TCP [sticky-1 sticky-2]",
		"echo TCP [echo-1 echo-2]",
		"datagram UDP [datagram-1 datagram-2]",
		"nobody TCP []",
	}, names)
}

func TestStart_besideAnother(t *testing.T) {
	t.Parallel()
	one, two := begin(t), begin(t)
	assert.NotEqual(t, one.Dir, two.Dir)
	assert.NotEqual(t, one.Services[0].Addr, two.Services[0].Addr)
}

func TestBackends_tellTheirNames(t *testing.T) {
	t.Parallel()
	d := begin(t)

	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + d.backend(t, "web-1").addr.String())
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	assert.Equal(t, "hello from web-1\n", string(body))

	conn := dial(t, "tcp", d.backend(t, "echo-2").addr)
	lines := bufio.NewReader(conn)
	for _, step := range []struct{ say, hear string }{
		{"", "hello from echo-2\n"},
		{"one\n", "echo-2: one\n"},
		{"two\n", "echo-2: two\n"},
	} {
		_, err := io.WriteString(conn, step.say)
		require.NoError(t, err)
		heard, err := lines.ReadString('\n')
		require.NoError(t, err)
		assert.Equal(t, step.hear, heard)
	}

	conn = dial(t, "udp", d.backend(t, "datagram-1").addr)
	_, err = io.WriteString(conn, "ping")
	require.NoError(t, err)
	answer := make([]byte, 100)
	n, err := conn.Read(answer)
	require.NoError(t, err)
	assert.Equal(t, "datagram-1: ping", string(answer[:n]))
}

// TestManifest_onOneAddress: no two sockets collide where everything is on
// 127.0.0.1.
func TestManifest_onOneAddress(t *testing.T) {
	t.Parallel()
	d := &Demo{Dir: t.TempDir()}
	require.NoError(t, d.writeManifest(singleAddress))
	services, endpoints, problems, err := file.Load(file.Options{Paths: []string{d.Dir}})
	require.NoError(t, err)
	assert.Empty(t, problems)
	d.read(services, endpoints)

	at := map[netip.AddrPort]string{}
	place := func(addr netip.AddrPort, who string) {
		assert.Equal(t, "127.0.0.1", addr.Addr().String(), who)
		assert.Empty(t, at[addr], "%s is at %s too", who, addr)
		at[addr] = who
	}
	for _, s := range d.Services {
		place(s.Addr, s.Name)
	}
	for _, b := range d.backends {
		place(b.addr, b.name)
	}
	assert.Len(t, at, 14)
}

// TestRun_diesAndComesBack: the backend dies before its endpoint says so, and
// is there before its endpoint says that.
func TestRun_diesAndComesBack(t *testing.T) {
	t.Parallel()
	d := begin(t)
	addr := d.backend(t, Mortal).addr
	ready := regexp.MustCompile(`ready: (true|false)`)
	state := func() string {
		text, err := os.ReadFile(filepath.Join(d.Dir, comingAndGoing))
		require.NoError(t, err)
		alive := "dead" // also where somebody else has the port meanwhile
		client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
		if answer, err := client.Get("http://" + addr.String()); err == nil {
			body, _ := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if strings.Contains(string(body), Mortal) {
				alive = "alive"
			}
		}
		return alive + ", " + ready.FindString(string(text))
	}

	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	seen := []string{state()}
	err := d.Run(ctx, time.Millisecond, func(said string) {
		seen = append(seen, said, state())
		if len(seen) > 12 {
			cancel()
		}
	})
	require.NoError(t, err)
	round := []string{
		"alive, ready: true",
		"web-3 has died; connections move on to the others",
		"dead, ready: true",
		"web-3 is taken for not ready, and is not tried any more",
		"dead, ready: false",
		"web-3 is back",
	}
	assert.Equal(t, append(append(round, round...), "alive, ready: true"), seen)
}

func TestRun_failsWhereTheAddressWasTaken(t *testing.T) {
	t.Parallel()
	d := begin(t)
	var thief net.Listener
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := d.Run(ctx, time.Millisecond, func(string) {
		if thief == nil {
			var err error
			thief, err = net.Listen("tcp", d.backend(t, Mortal).addr.String())
			require.NoError(t, err)
		}
	})
	require.NotNil(t, thief)
	defer thief.Close()
	assert.ErrorContains(t, err, "demo: backend web-3: listen tcp")
}
