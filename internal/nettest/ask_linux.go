package nettest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// ReadBanner connects from the host and returns the first line that the server
// sends, without having said anything, and closes.
func (h *Host) ReadBanner(ctx context.Context, address string) (string, error) {
	c, err := h.dialSoon(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer c.Close() //nolint:errcheck // read only
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("reading a banner from %s: %w", address, err)
	}
	return strings.TrimSuffix(line, "\n"), nil
}

// ExchangeTCP connects from the host, sends a message, closes its side and
// returns everything that the server sends until it closes too.
func (h *Host) ExchangeTCP(ctx context.Context, address, message string) (string, error) {
	c, err := h.dialSoon(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer c.Close() //nolint:errcheck // both sides are closed already
	if _, err := io.WriteString(c, message); err != nil {
		return "", fmt.Errorf("sending to %s: %w", address, err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return "", fmt.Errorf("closing the sending side to %s: %w", address, err)
	}
	all, err := io.ReadAll(c)
	return string(all), err
}

// ExchangeUDP sends one datagram from a new socket of the host and returns the
// reply. The socket is connected: a reply from another address is not seen,
// and a closed port is an error that is syscall.ECONNREFUSED.
func (h *Host) ExchangeUDP(ctx context.Context, address, message string) (string, error) {
	c, err := h.dialSoon(ctx, "udp", address)
	if err != nil {
		return "", err
	}
	defer c.Close() //nolint:errcheck // a datagram socket has nothing to flush
	if _, err := io.WriteString(c, message); err != nil {
		return "", fmt.Errorf("sending to %s: %w", address, err)
	}
	buf := make([]byte, 1<<16)
	n, err := c.Read(buf)
	if err != nil {
		return "", fmt.Errorf("reading a reply from %s: %w", address, err)
	}
	return string(buf[:n]), nil
}

// Get asks for a URL from the host and returns the body of a 200.
func (h *Host) Get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := h.HTTPClient().Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answered %s: %s", url, resp.Status, body)
	}
	return string(body), err
}

// dialSoon dials with Patience as the deadline of the connection.
func (h *Host) dialSoon(ctx context.Context, network, address string) (net.Conn, error) {
	deadline := time.Now().Add(Patience)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	c, err := h.Dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if err := c.SetDeadline(deadline); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// AssertRefused says whether a connection, or a datagram, from the host is
// refused: by a reset, or by an ICMP message that the port cannot be reached.
// No answer is not a refusal. The network is "tcp" or "udp".
func (h *Host) AssertRefused(t testing.TB, network, address string) bool {
	t.Helper()
	err := h.Refusal(context.Background(), network, address)
	return assert.ErrorIs(t, err, syscall.ECONNREFUSED, "%s from %s to %s", network, h.Name, address)
}

// Refusal is why a connection, or a datagram, from the host is not answered;
// nil where it is. AssertRefused says what is a refusal.
func (h *Host) Refusal(ctx context.Context, network, address string) error {
	if network == "udp" {
		_, err := h.ExchangeUDP(ctx, address, "anybody there?")
		return err
	}
	c, err := h.dialSoon(ctx, network, address)
	if err != nil {
		return err
	}
	return c.Close()
}
