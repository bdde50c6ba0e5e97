package connlimit

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

// serve runs a server with a limit, and without any time limit, until the test ends.
func serve(t *testing.T, limit *Limit) (address string) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.ConnState = limit.Note
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	return c
}

// requireAnswer asks over a connection, which stays open.
func requireAnswer(t *testing.T, c net.Conn) {
	t.Helper()
	_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: here\r\n\r\n")
	require.NoError(t, err)
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusOK, answer.StatusCode)
}

// TestLimit_theOldestGivesWay, whichever of the servers has it, and the others
// stay.
func TestLimit_theOldestGivesWay(t *testing.T) {
	t.Parallel()
	const most = 4
	limit := New(most)
	servers := []string{serve(t, limit), serve(t, limit)}
	var all []net.Conn
	for i := range 3 * most {
		c := dial(t, servers[i%len(servers)])
		requireAnswer(t, c) // in turn, so that it is known which is older
		all = append(all, c)
	}
	for i, c := range all[:2*most] {
		_, err := c.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF, "connection %d", i)
	}
	for _, c := range all[2*most:] {
		requireAnswer(t, c)
	}
}

// TestLimit_whatHasEndedDoesNotCount: an old connection stays while others come
// and go.
func TestLimit_whatHasEndedDoesNotCount(t *testing.T) {
	t.Parallel()
	limit := New(2)
	at := serve(t, limit)
	old := dial(t, at)
	requireAnswer(t, old)
	for range 5 {
		c := dial(t, at)
		requireAnswer(t, c)
		require.NoError(t, c.Close())
		require.Eventually(t, func() bool {
			limit.mu.Lock()
			defer limit.mu.Unlock()
			return len(limit.open) == 1
		}, patience, time.Millisecond)
	}
	requireAnswer(t, old)
}
