package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// These and relay_test.go are what every implementation of the TCP path must
// do: the event loops, and with -tags portable the goroutines.

func TestAGigabyteArrivesUnaltered(t *testing.T) {
	t.Parallel()
	const blocks = 1024
	_, client, endpoint := through(t, Config{})
	require.NoError(t, client.SetDeadline(time.Now().Add(10*patience)))
	require.NoError(t, endpoint.SetDeadline(time.Now().Add(10*patience)))
	block := random(1 << 20)
	go func() {
		for range blocks {
			if _, err := client.Write(block); err != nil {
				return
			}
		}
		_ = client.CloseWrite()
	}()
	got := make([]byte, len(block))
	for i := range blocks {
		_, err := io.ReadFull(endpoint, got)
		require.NoError(t, err)
		require.True(t, bytes.Equal(block, got), "block %d", i)
	}
	_, err := endpoint.Read(got)
	require.ErrorIs(t, err, io.EOF)
}

func TestSlowWriter(t *testing.T) {
	t.Parallel()
	_, client, endpoint := through(t, Config{IdleTimeout: time.Second})
	go func() {
		for range 20 { // in all twice the idle time
			if _, err := client.Write([]byte("x")); err != nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		_ = client.CloseWrite()
	}()
	assert.Len(t, readAll(t, endpoint), 20)
}

// A reader that stops for some time loses nothing, whatever the timeouts for
// peers that have vanished are: it is there, and says so.
func TestZeroWindow(t *testing.T) {
	t.Parallel()
	_, client, endpoint := through(t, Config{KeepAlive: time.Second}) // it answers more probes than a vanished one may miss
	sent := random(16 << 20)
	go func() {
		_, _ = endpoint.Write(sent)
		_ = endpoint.CloseWrite()
	}()
	time.Sleep((keepAliveProbes + 3) * time.Second)
	require.NoError(t, client.SetDeadline(time.Now().Add(patience)))
	require.NoError(t, endpoint.SetDeadline(time.Now().Add(patience)))
	got := readAll(t, client)
	assert.True(t, bytes.Equal(sent, []byte(got)), "sent %d bytes, got %d", len(sent), len(got))
}

// An endpoint that accepts and never reads holds its own client up, with a
// bounded amount of memory, and nobody else.
func TestAnEndpointThatNeverReads(t *testing.T) {
	t.Parallel()
	f := start(t, Config{})
	deaf, _ := one(t)
	f.update(f.port(deaf), f.portNamed("other", netip.AddrPortFrom(ownAddr(), 80), named(t, "other")))
	client := f.dial()
	block, total := random(1<<20), 0
	for moved := 1; moved > 0; total += moved { // until not a byte more is taken
		require.NoError(t, client.SetWriteDeadline(time.Now().Add(time.Second)))
		moved, _ = client.Write(block)
		require.Less(t, total, 256<<20, "it takes bytes without end")
	}
	other := dialTCP(t, netip.MustParseAddrPort(f.Status().Ports[0].Portals[0].Addr.String()))
	line := make([]byte, len("other\n"))
	_, err := io.ReadFull(other, line)
	require.NoError(t, err)
}

// One connection at full speed leaves the others served.
func TestFairnessBesideAStreamAtFullSpeed(t *testing.T) {
	t.Parallel()
	f := start(t, Config{})
	sink := backend(t, func(conn *net.TCPConn) { _, _ = io.Copy(io.Discard, conn) })
	web := netip.AddrPortFrom(ownAddr(), 80)
	f.update(f.port(sink), f.portNamed("other", web, named(t, "web")))
	streams := make(chan struct{})
	done := make(chan struct{})
	for range 4 {
		conn := f.dial()
		go func() {
			defer func() { done <- struct{}{} }()
			for block := random(1 << 20); ; {
				select {
				case <-streams:
					return
				default:
				}
				if _, err := conn.Write(block); err != nil {
					return
				}
			}
		}()
	}
	conn := dialTCP(t, web)
	_, err := io.ReadFull(conn, make([]byte, len("web\n")))
	require.NoError(t, err)
	for range 200 {
		write(t, conn, "x")
		_, err := io.ReadFull(conn, make([]byte, 1))
		require.NoError(t, err)
	}
	close(streams)
	for range 4 {
		receive(t, done)
	}
}

// Whatever either side does in whatever state, the other is told in the end
// and nothing stays behind.
func TestCloseInEveryState(t *testing.T) {
	t.Parallel()
	quit := map[string]func(*net.TCPConn){
		"close": func(c *net.TCPConn) { _ = c.Close() },
		"reset": func(c *net.TCPConn) { _ = c.SetLinger(0); _ = c.Close() },
	}
	states := map[string]func(t *testing.T, client, endpoint *net.TCPConn){
		"fresh":              func(*testing.T, *net.TCPConn, *net.TCPConn) {},
		"after a ping":       func(t *testing.T, c, e *net.TCPConn) { t.Helper(); write(t, c, "x"); write(t, e, "y") },
		"client half-closed": func(t *testing.T, c, _ *net.TCPConn) { t.Helper(); require.NoError(t, c.CloseWrite()) },
		"both half-closed": func(t *testing.T, c, e *net.TCPConn) {
			t.Helper()
			require.NoError(t, c.CloseWrite())
			require.NoError(t, e.CloseWrite())
		},
		"owed to the client": func(t *testing.T, _, e *net.TCPConn) { t.Helper(); write(t, e, string(random(300_000))) },
		"owed both ways": func(t *testing.T, c, e *net.TCPConn) {
			t.Helper()
			write(t, e, string(random(300_000)))
			write(t, c, string(random(300_000)))
		},
	}
	for state, reach := range states {
		for how, end := range quit {
			for _, clientFirst := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, %s, client first %v", state, how, clientFirst), func(t *testing.T) {
					t.Parallel()
					f, client, endpoint := through(t, Config{HalfCloseTimeout: time.Minute})
					reach(t, client, endpoint)
					first, second := client, endpoint
					if !clientFirst {
						first, second = endpoint, client
					}
					end(first)
					_, err := io.Copy(io.Discard, second) // told: it ends, one way or the other
					if err != nil {
						require.ErrorIs(t, err, syscall.ECONNRESET)
					}
					_ = second.Close()
					f.drained()
				})
			}
		}
	}
}
