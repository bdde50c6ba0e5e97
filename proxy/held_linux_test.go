//go:build linux && !portable

package proxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A held port is nobody else's, whatever options a stranger sets; and a port
// that somebody has is not taken from them.
func TestCase33_HeldPortsAreNobodyElses(t *testing.T) {
	t.Parallel()
	stranger := func(network string, addr netip.AddrPort, options ...int) error {
		lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) {
				for _, o := range options {
					_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, o, 1)
				}
			})
		}}
		var closer io.Closer
		var err error
		if network == "tcp" {
			closer, err = lc.Listen(context.Background(), network, addr.String())
		} else {
			closer, err = lc.ListenPacket(context.Background(), network, addr.String())
		}
		if err == nil {
			_ = closer.Close()
		}
		return err
	}
	for _, options := range [][]int{nil, {unix.SO_REUSEADDR}, {unix.SO_REUSEPORT}, {unix.SO_REUSEADDR, unix.SO_REUSEPORT}} {
		t.Run(fmt.Sprint(options), func(t *testing.T) {
			t.Parallel()
			tcp, err := openTCP(netip.AddrPortFrom(ownAddr(), 80))
			require.NoError(t, err)
			t.Cleanup(func() { _ = tcp.close() })
			udp, err := openUDP(netip.AddrPortFrom(ownAddr(), 80))
			require.NoError(t, err)
			t.Cleanup(func() { _ = udp.close() })

			require.ErrorIs(t, stranger("tcp", tcp.addr, options...), syscall.EADDRINUSE, "held")
			require.ErrorIs(t, stranger("udp", udp.addr, options...), syscall.EADDRINUSE, "held")
			require.NoError(t, tcp.listen())
			conn, err := udp.release()
			require.NoError(t, err)
			require.ErrorIs(t, stranger("tcp", tcp.addr, options...), syscall.EADDRINUSE, "serving")
			require.ErrorIs(t, stranger("udp", udp.addr, options...), syscall.EADDRINUSE, "serving")
			require.NoError(t, tcp.hold())
			require.NoError(t, udp.hold(conn))
			require.NoError(t, conn.Close())
			require.ErrorIs(t, stranger("tcp", tcp.addr, options...), syscall.EADDRINUSE, "held again")
			require.ErrorIs(t, stranger("udp", udp.addr, options...), syscall.EADDRINUSE, "held again")
		})
	}
}

func TestCase33_ATakenPortIsNotTakenOver(t *testing.T) {
	t.Parallel()
	addr := netip.AddrPortFrom(ownAddr(), 80)
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
	}}
	tcp, err := lc.Listen(context.Background(), "tcp", addr.String())
	require.NoError(t, err)
	defer tcp.Close()
	udp, err := lc.ListenPacket(context.Background(), "udp", addr.String())
	require.NoError(t, err)
	defer udp.Close()
	_, err = openTCP(addr)
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	_, err = openUDP(addr)
	require.ErrorIs(t, err, syscall.EADDRINUSE)
}

// Switching must lose no port and no connection, in both families.
func TestHeldAndServingManyTimes(t *testing.T) {
	t.Parallel()
	for _, addr := range []netip.Addr{ownAddr(), netip.IPv6Loopback()} {
		t.Run(addr.String(), func(t *testing.T) {
			t.Parallel()
			udp, err := openUDP(netip.AddrPortFrom(addr, 80))
			require.NoError(t, err)
			tcp, err := openTCP(netip.AddrPortFrom(addr, 80))
			require.NoError(t, err)
			t.Cleanup(func() { _ = tcp.close() })
			t.Cleanup(func() { _ = udp.close() })
			for range 20 {
				assertUnreachable(t, udp.addr)
				_, err := net.Dial("tcp", tcp.addr.String())
				require.ErrorIs(t, err, syscall.ECONNREFUSED)

				require.NoError(t, tcp.listen())
				client := dialTCP(t, tcp.addr)
				conn, _, err := unix.Accept(tcp.fd)
				require.NoError(t, err)
				released, err := udp.release()
				require.NoError(t, err)
				assertReceives(t, released, udp.addr)

				require.NoError(t, tcp.hold())
				_, _, err = unix.Accept(tcp.fd)
				require.ErrorIs(t, err, unix.EINVAL, "it does not listen")
				_, err = unix.Write(conn, []byte("accepted connections survive"))
				require.NoError(t, err)
				require.NoError(t, unix.Close(conn))
				assert.Equal(t, "accepted connections survive", readAll(t, client))
				require.NoError(t, udp.hold(released))
				require.NoError(t, released.Close())
			}
		})
	}
}

func assertUnreachable(t *testing.T, to netip.AddrPort) {
	t.Helper()
	conn, err := net.Dial("udp", to.String())
	require.NoError(t, err)
	defer conn.Close()
	write(t, conn, "anybody?")
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

func assertReceives(t *testing.T, conn *net.UDPConn, at netip.AddrPort) {
	t.Helper()
	client, err := net.Dial("udp", at.String())
	require.NoError(t, err)
	defer client.Close()
	write(t, client, "here")
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	got := make([]byte, 10)
	n, err := conn.Read(got)
	require.NoError(t, err)
	require.Equal(t, "here", string(got[:n]))
}
