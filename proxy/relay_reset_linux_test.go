//go:build linux && !portable

package proxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Elsewhere a reset becomes the end of the stream, since no portable call
// tells when a reset would no longer throw bytes away.

func TestCase4_ResetIsCarriedAfterBytes(t *testing.T) {
	t.Parallel()
	for name, swap := range map[string]bool{"client resets": false, "endpoint resets": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, a, b := through(t, Config{})
			if swap {
				a, b = b, a
			}
			write(t, a, "last words")
			got := make([]byte, len("last words"))
			_, err := io.ReadFull(b, got)
			require.NoError(t, err)
			require.NoError(t, a.SetLinger(0))
			require.NoError(t, a.Close())
			_, err = b.Read(make([]byte, 1))
			assert.ErrorIs(t, err, syscall.ECONNRESET)
			assert.Equal(t, "last words", string(got))
		})
	}
}

func TestCase55_BytesBeforeAResetArriveWhole(t *testing.T) {
	t.Parallel()
	for name, swap := range map[string]bool{"to client": true, "to endpoint": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, a, b := through(t, Config{})
			if swap {
				a, b = b, a
			}
			sent := random(1 << 20)
			go func() { // b does not read yet: much of it waits in the proxy's buffers
				_, _ = a.Write(sent)
				for unsentOf(a) > 0 { // all of it must have left a's kernel, or its own reset discards the rest
					time.Sleep(time.Millisecond)
				}
				_ = a.SetLinger(0)
				_ = a.Close()
			}()
			time.Sleep(100 * time.Millisecond)
			got, err := io.ReadAll(b)
			assert.ErrorIs(t, err, syscall.ECONNRESET, "it ends as it was ended")
			assert.True(t, bytes.Equal(sent, got), "sent %d bytes, got %d", len(sent), len(got))
		})
	}
}

func TestCase4_ResetWhileTheOtherSideWrites(t *testing.T) {
	t.Parallel()
	much := random(64 << 20) // more than the kernel's buffers take
	for range 20 {           // the writer and the reader race for the one sign of the reset
		_, client, endpoint := through(t, Config{})
		// The endpoint's kernel keeps the proxy writing, the endpoint itself
		// only reads, so that the sign is left for the read here.
		require.NoError(t, endpoint.SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
		_, err := endpoint.Write(much)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		_, err = io.ReadFull(client, make([]byte, 1<<20))
		require.NoError(t, err)
		require.NoError(t, client.SetLinger(0))
		require.NoError(t, client.Close())
		_, err = endpoint.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET, "a reset must not look like the end of the stream")
	}
}

// A side that has ended and that is owed nothing more does not keep a connection
// for ever whose other side never takes what came before the end.
func TestCase1_HalfEndedWithBytesOwedEnds(t *testing.T) {
	t.Parallel()
	for name, swap := range map[string]bool{"client ends": false, "endpoint ends": true} {
		for how, end := range map[string]func(*net.TCPConn) error{
			"its stream": (*net.TCPConn).CloseWrite,
			"by a reset": func(c *net.TCPConn) error { return errors.Join(c.SetLinger(0), c.Close()) },
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				f, a, b := through(t, Config{HalfCloseTimeout: 100 * time.Millisecond})
				if swap {
					a, b = b, a
				}
				f.owe(a)
				require.NoError(t, end(a))
				f.drained() // though b never reads
				runtime.KeepAlive(b)
			})
		}
	}
}

// A peer that takes bytes is looked at often, and one that takes none costs little.
func TestCase55_LooksAreFew(t *testing.T) {
	t.Parallel()
	looks, first := 0, nextLook(0)
	for stalled := time.Duration(0); stalled < 2*time.Minute; stalled += nextLook(stalled) {
		looks++
	}
	assert.LessOrEqual(t, first, 10*time.Millisecond)
	assert.Less(t, looks, 150)
}

// owe writes from one side of the fixture's only connection until the proxy has
// more than the other side, which does not read, takes.
func (f *fixture) owe(from *net.TCPConn) {
	f.t.Helper()
	piece := random(64 << 10)
	var sent, carried int64
	for stuck := 0; stuck < 20; {
		n, err := from.Write(piece)
		require.NoError(f.t, err)
		sent += int64(n)
		require.Eventually(f.t, func() bool { return unsentOf(from) == 0 }, patience, time.Millisecond)
		for stuck = 0; stuck < 20 && carried < sent; stuck++ {
			time.Sleep(5 * time.Millisecond)
			list, _ := f.Connections(1)
			require.Len(f.t, list, 1)
			carried = list[0].Up + list[0].Down
		}
	}
}

func unsentOf(conn *net.TCPConn) (n int) {
	rc, err := conn.SyscallConn()
	if err == nil {
		_ = rc.Control(func(fd uintptr) { n = unsent(int(fd)) })
	}
	return n
}

// A side that is reset while it is owed bytes will never take them: nothing is
// left to wait for.
func TestCase4_BothSidesResetWithBytesOwed(t *testing.T) {
	t.Parallel()
	for range 50 {
		f, client, endpoint := through(t, Config{HalfCloseTimeout: time.Hour})
		write(t, endpoint, string(random(200_000))) // more than the client's window
		for _, conn := range []*net.TCPConn{endpoint, client} {
			require.NoError(t, conn.SetLinger(0))
			require.NoError(t, conn.Close())
		}
		f.drained()
	}
}
