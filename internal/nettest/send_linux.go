package nettest

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// silence is how long a test waits before it says that nobody answers. It is
// short because every answer comes from this machine, and because it is only
// waited for where rules are meant to drop.
const silence = 300 * time.Millisecond

// ServeBoth serves an address over TCP and UDP on a host; clients are told name.
func (h *Host) ServeBoth(t testing.TB, name string, addrs ...string) {
	t.Helper()
	for _, a := range addrs {
		h.ServeTCP(t, a, Banner(name))
		h.ServeUDP(t, a, func([]byte) ([]byte, bool) { return []byte(name), true })
	}
}

// Own gives the host addresses that are portals elsewhere, so that what passes
// the rules arrives somewhere.
func (h *Host) Own(t testing.TB, addrs ...string) {
	t.Helper()
	for _, a := range addrs {
		addr := netip.MustParseAddr(a)
		args := []string{"addr", "add", netip.PrefixFrom(addr, addr.BitLen()).String(), "dev", "lo"}
		if addr.Is6() {
			args = append(args, "nodad")
		}
		h.Output(t, "ip", args...)
	}
}

// Host is the host of that name.
func (b *Bed) Host(name string) *Host {
	return map[string]*Host{"client": b.Client, "pod": b.Pod, "node": b.Node, "back": b.Back}[name]
}

// Send really sends a packet and says what became of it. It waits as long as need be for an answer, and for silence, where
// that is expected, not for ever.
func (b *Bed) Send(t testing.TB, p Packet, expected string) string {
	t.Helper()
	return b.SendFrom(t, "", p, expected)
}

// SendFrom is Send from a chosen address and port, where one is given.
func (b *Bed) SendFrom(t testing.TB, source string, p Packet, expected string) string {
	t.Helper()
	patience := Patience
	if expected == Dropped {
		patience = silence
	}
	d := &net.Dialer{Timeout: patience, Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if p.Mark != 0 {
			err = errors.Join(c.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(p.Mark))
			}), err)
		}
		return err
	}}
	if source != "" {
		at := netip.MustParseAddrPort(source)
		d.LocalAddr = net.Addr(net.TCPAddrFromAddrPort(at))
		if p.Proto == service.UDP {
			d.LocalAddr = net.UDPAddrFromAddrPort(at)
		}
	}
	c, err := b.Host(p.From).DialFrom(t.Context(), d, p.Proto.Lower(), p.Dst.String())
	if err != nil {
		return outcome(err)
	}
	defer func() { _ = c.Close() }()
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	if p.Proto == service.UDP {
		// A datagram that OUTPUT stops is EPERM here, and then ECONNREFUSED
		// if it was refused and not dropped.
		if _, err := c.Write([]byte("anybody there?")); err != nil && !errors.Is(err, syscall.EPERM) {
			return outcome(err)
		}
	}
	buf := make([]byte, 200)
	n, err := c.Read(buf)
	if err != nil {
		return outcome(err)
	}
	return strings.TrimSuffix(string(buf[:n]), "\n")
}

func outcome(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout():
		return Dropped
	}
	return err.Error()
}
