package main

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answering is a server as the backends are, for TCP and UDP on one port.
func answering(t *testing.T) (tcp, udp string) {
	t.Helper()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("pod")) }))
	t.Cleanup(web.Close)
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	t.Cleanup(func() { _ = conn.Close(); <-done })
	go func() {
		defer close(done)
		b := make([]byte, 100)
		for {
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(b[len("echo "):n], from)
		}
	}()
	return web.Listener.Addr().String(), conn.LocalAddr().String()
}

func loaded(t *testing.T, tcp, udp string) *result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	return run(ctx, options{
		tcp: []string{tcp}, udp: []string{udp}, perSecond: 20, long: 2, during: "a test", from: "here",
		patience: 100 * time.Millisecond,
	})
}

func TestNothingIsLost(t *testing.T) {
	t.Parallel()
	tcp, udp := answering(t)
	r := loaded(t, tcp, udp)
	assert.Equal(t, "a test", r.During)
	assert.Equal(t, "here", r.From)
	assert.Equal(t, 2, r.Long.Tried, "connections that do not break")
	for _, one := range []*tally{&r.Short, &r.Datagrams, &r.Senders} {
		assert.Positive(t, one.Tried)
	}
	for _, one := range []*tally{&r.Short, &r.Long, &r.Datagrams, &r.Senders} {
		assert.Empty(t, one.Lost)
	}
}

// TestLostByCause: what each server does to its clients is called by its name.
func TestLostByCause(t *testing.T) {
	t.Parallel()
	for want, serve := range map[string]func(c *net.TCPConn){
		"timed out": func(c *net.TCPConn) { time.Sleep(300 * time.Millisecond) },
		"closed early": func(c *net.TCPConn) {
			_, _ = http.ReadRequest(bufio.NewReader(c)) // else closing is a reset
		},
		"reset":      func(c *net.TCPConn) { _ = c.SetLinger(0) },
		"status 404": func(c *net.TCPConn) { _, _ = c.Write([]byte("HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n")) },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			served := make(chan struct{})
			go func() {
				defer close(served)
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					serve(c.(*net.TCPConn))
					_ = c.Close()
				}
			}()
			silent, err := net.ListenPacket("udp", "127.0.0.1:0")
			require.NoError(t, err)
			r := loaded(t, l.Addr().String(), silent.LocalAddr().String())
			_ = l.Close()
			<-served
			_ = silent.Close()
			assert.Positive(t, r.Long.Lost[want], "%v", r.Long.Lost)
			assert.Greater(t, r.Long.Tried, 1, "a long connection that broke begins anew")
			assert.Positive(t, r.Senders.Lost["timed out"], "%v", r.Senders.Lost)
		})
	}
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		nobody := l.Addr().String()
		_ = l.Close()
		r := loaded(t, nobody, nobody)
		assert.Equal(t, map[string]int{"refused": r.Short.Tried}, r.Short.Lost)
		assert.Equal(t, map[string]int{"refused": r.Datagrams.Tried}, r.Datagrams.Lost)
	})
}
