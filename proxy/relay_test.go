package proxy

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// through is a client and the backend it reached through the proxy.
func through(t *testing.T, c Config) (f *fixture, client, endpoint *net.TCPConn) {
	t.Helper()
	f = start(t, c)
	addr, conns := one(t)
	f.serve(addr)
	client = f.dial()
	return f, client, receive(t, conns)
}

func TestCase1_HalfCloseIsCarriedEachWay(t *testing.T) {
	t.Parallel()
	for name, swap := range map[string]bool{"client first": false, "endpoint first": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, a, b := through(t, Config{})
			if swap {
				a, b = b, a
			}
			write(t, a, "ping")
			require.NoError(t, a.CloseWrite())
			assert.Equal(t, "ping", readAll(t, b), "all of it, and then the end")
			write(t, b, "a late ")
			write(t, b, "reply")
			require.NoError(t, b.CloseWrite())
			assert.Equal(t, "a late reply", readAll(t, a))
		})
	}
}

func TestCase1_HalfClosedWithoutTrafficEnds(t *testing.T) {
	t.Parallel()
	f, client, endpoint := through(t, Config{HalfCloseTimeout: 50 * time.Millisecond})
	require.NoError(t, client.CloseWrite())
	assert.Empty(t, readAll(t, endpoint))
	_, err := io.ReadAll(client)
	assert.ErrorIs(t, err, syscall.ECONNRESET)
	f.drained()
}

func TestCase1_HalfClosedWithTrafficLivesOn(t *testing.T) {
	t.Parallel()
	_, client, endpoint := through(t, Config{HalfCloseTimeout: time.Second})
	require.NoError(t, client.CloseWrite())
	for range 20 { // twice the timeout and more in all, each pause far below it
		write(t, endpoint, "x")
		time.Sleep(100 * time.Millisecond)
	}
	require.NoError(t, endpoint.CloseWrite())
	assert.Len(t, readAll(t, client), 20)
}

func TestCase5_TheServerMaySpeakFirst(t *testing.T) {
	t.Parallel()
	_, client, endpoint := through(t, Config{})
	write(t, endpoint, "220 ready\r\n")
	got := make([]byte, len("220 ready\r\n"))
	_, err := io.ReadFull(client, got)
	require.NoError(t, err)
	assert.Equal(t, "220 ready\r\n", string(got))
}

func TestBytesInAreBytesOut(t *testing.T) {
	t.Parallel()
	for name, pieces := range map[string][]int{
		"one byte at a time": bytes2sizes(2000, 1),
		"around a chunk":     {chunk - 1, chunk, chunk + 1, 2*chunk + 1, 1},
		"16 MiB":             {16 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, client, endpoint := through(t, Config{})
			go func() {
				_, _ = io.Copy(endpoint, endpoint)
				_ = endpoint.CloseWrite()
			}()
			var sent []byte
			for _, n := range pieces {
				sent = append(sent, random(n)...)
			}
			go func() {
				rest := sent
				for _, n := range pieces {
					if _, err := client.Write(rest[:n]); err != nil {
						return
					}
					rest = rest[n:]
				}
				_ = client.CloseWrite()
			}()
			got := readAll(t, client)
			assert.True(t, bytes.Equal(sent, []byte(got)), "sent %d bytes, got %d", len(sent), len(got))
		})
	}
}

func TestSlowReaderLosesNothing(t *testing.T) {
	t.Parallel()
	_, client, endpoint := through(t, Config{})
	require.NoError(t, client.SetReadBuffer(64<<10))
	sent := random(1 << 20)
	go func() {
		_, _ = endpoint.Write(sent)
		_ = endpoint.CloseWrite()
	}()
	var got []byte
	for buf := make([]byte, 64<<10); ; {
		n, err := client.Read(buf)
		got = append(got, buf[:n]...)
		if err != nil {
			require.ErrorIs(t, err, io.EOF)
			break
		}
		time.Sleep(time.Millisecond)
	}
	assert.True(t, bytes.Equal(sent, got), "sent %d bytes, got %d", len(sent), len(got))
}

func TestIdleTimeoutEndsBothSides(t *testing.T) {
	t.Parallel()
	f, client, endpoint := through(t, Config{IdleTimeout: 50 * time.Millisecond})
	_, err := client.Read(make([]byte, 1))
	assert.ErrorIs(t, err, syscall.ECONNRESET)
	_, err = endpoint.Read(make([]byte, 1))
	assert.ErrorIs(t, err, syscall.ECONNRESET)
	f.drained()
}

// drained returns when no connection is left, and every descriptor has been given
// back. For a moment a loop may hold two for a connection that another accepts.
func (f *fixture) drained() {
	f.t.Helper()
	require.Eventually(f.t, func() bool {
		return f.shared.tcp.open() == 0 && f.Status().Descriptors.Traffic == 0
	}, patience, time.Millisecond)
}

func write(t *testing.T, conn net.Conn, s string) {
	t.Helper()
	_, err := io.WriteString(conn, s)
	require.NoError(t, err)
}

func readAll(t *testing.T, conn net.Conn) string {
	t.Helper()
	b, err := io.ReadAll(conn)
	require.NoError(t, err)
	return string(b)
}

func bytes2sizes(n, size int) []int {
	sizes := make([]int, n)
	for i := range sizes {
		sizes[i] = size
	}
	return sizes
}

func random(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, 2))
	for i := 0; i+8 <= n; i += 8 {
		v := r.Uint64()
		for j := range 8 {
			b[i+j] = byte(v >> (8 * j))
		}
	}
	return b
}
