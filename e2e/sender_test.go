package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
)

// sender sends twenty numbered datagrams a second from one port, whatever
// becomes of them, and takes in what is answered.
type sender struct {
	from *nettest.Host
	to   string
	conn net.Conn // connected: a reply from another address is not seen

	mu      sync.Mutex
	sent    int
	refused int            // number of the last datagram sent before a refusal came
	by      map[string]int // number of the last datagram that each server has answered
	heard   map[int]bool   // those that any has answered
}

// keepSending sends from a host until the test ends.
func keepSending(t *testing.T, from *nettest.Host, to string) *sender {
	t.Helper()
	conn, err := from.Dial(t.Context(), "udp", to)
	require.NoError(t, err)
	s := &sender{from: from, to: to, conn: conn, by: make(map[string]int), heard: make(map[int]bool)}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.send(ctx) })
	running.Go(s.receive)
	t.Cleanup(func() {
		cancel()
		_ = conn.Close()
		running.Wait()
	})
	return s
}

func (s *sender) send(ctx context.Context) {
	tick := time.NewTicker(time.Second / 20)
	defer tick.Stop()
	for ; ; <-tick.C {
		if ctx.Err() != nil {
			return
		}
		s.mu.Lock()
		s.sent++
		n := s.sent
		s.mu.Unlock()
		_, err := s.conn.Write([]byte(strconv.Itoa(n)))
		s.note(err)
	}
}

func (s *sender) receive() {
	b := make([]byte, 100)
	for {
		n, err := s.conn.Read(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		s.note(err)
		if err != nil {
			continue
		}
		name, number, _ := strings.Cut(string(b[:n]), " ")
		i, _ := strconv.Atoi(number)
		s.mu.Lock()
		s.by[name] = max(s.by[name], i)
		s.heard[i] = true
		s.mu.Unlock()
	}
}

// note takes in that a datagram has come back.
func (s *sender) note(err error) {
	if errors.Is(err, syscall.ECONNREFUSED) {
		s.mu.Lock()
		s.refused = s.sent
		s.mu.Unlock()
	}
}

// now is the number of the last datagram sent.
func (s *sender) now() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}

// answeredBy is the number of the last datagram that a server has answered.
func (s *sender) answeredBy(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.by[name]
}

// lost are those after one number and up to another that nobody has answered.
func (s *sender) lost(after, upTo int) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lost []int
	for n := after + 1; n <= upTo; n++ {
		if !s.heard[n] {
			lost = append(lost, n)
		}
	}
	return lost
}

// String says how far it has come.
func (s *sender) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("sender on %s to %s: %d sent, last answered %v, last refused %d", s.from.Name, s.to, s.sent, s.by, s.refused)
}

// requireAnswered waits until each sender has a datagram answered by a server
// that it sends from now on.
func requireAnswered(t *testing.T, senders []*sender, name string) {
	t.Helper()
	for _, s := range senders {
		from := s.now()
		eventually(t, func() bool { return s.answeredBy(name) > from },
			func() string { return fmt.Sprintf("%s to answer from number %d on; %v", name, from, s) })
	}
}

// requireRefused waits until each sender is refused.
func requireRefused(t *testing.T, senders []*sender) {
	t.Helper()
	for _, s := range senders {
		from := s.now()
		eventually(t, func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.refused > from
		}, func() string { return fmt.Sprintf("a refusal from number %d on; %v", from, s) })
	}
}
