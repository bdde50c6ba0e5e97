//go:build linux && !portable

package proxy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// serveOn serves clients by a socket of a host of a bed, to endpoints of the
// host that the test runs on.
func serveOn(t *testing.T, host *nettest.Host, network, listen string, endpoints ...netip.AddrPort) *udpPath {
	t.Helper()
	p := serveUDP(t, udpOptions{}, endpoints...)
	conn, err := host.ListenPacket(network, listen)
	require.NoError(t, err)
	s, err := newUDPServer(udpConfig{
		flows: p.flows, conn: conn.(*net.UDPConn), balancer: p.group, account: new(account), idle: time.Hour, log: p.udpServer.log,
	})
	require.NoError(t, err)
	t.Cleanup(s.close)
	p.udpServer, p.addr = s, netip.MustParseAddrPort(conn.LocalAddr().String())
	return p
}

func TestCase15_UDPOnAnyAddressRepliesFromTheOneSentTo(t *testing.T) {
	t.Parallel()
	bed := nettest.New(t)
	e := echoUDP(t)
	for _, s := range []struct {
		name, server, client string // networks
		family               service.Family
	}{
		{"IPv4", "udp4", "udp4", service.IPv4},
		{"IPv6", "udp6", "udp6", service.IPv6},
		{"IPv4 on a socket of both", "udp", "udp4", service.IPv4},
		{"IPv6 on a socket of both", "udp", "udp6", service.IPv6},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			family := s.family
			p := serveOn(t, bed.Node, s.server, ":0", e.addr)
			client, err := bed.Client.ListenPacket(s.client, ":0")
			require.NoError(t, err)
			defer client.Close()
			require.NoError(t, client.SetDeadline(time.Now().Add(patience)))
			for range 2 {
				for _, addr := range bed.Node.Addrs(family) {
					to := netip.AddrPortFrom(addr, p.addr.Port())
					_, err := client.WriteTo([]byte(to.String()), net.UDPAddrFromAddrPort(to))
					require.NoError(t, err)
					b := make([]byte, 100)
					n, from, err := client.ReadFrom(b)
					require.NoError(t, err)
					assert.Equal(t, to.String(), from.String())
					assert.Equal(t, to.String(), string(b[:n]))
				}
			}
			st := p.status(1000)
			require.Len(t, st, len(bed.Node.Addrs(family)), "a flow for each address sent to")
			var locals []netip.Addr
			for _, f := range st {
				locals = append(locals, f.Local)
			}
			assert.ElementsMatch(t, bed.Node.Addrs(family), locals)
		})
	}
}

// A client that calls a link-local address may have chosen a global one for
// itself: until its interface has a link-local one it does.
func TestCase15_UDPLinkLocalClients(t *testing.T) {
	t.Parallel()
	bed := nettest.New(t)
	global := &net.UDPAddr{IP: bed.Pod.Addr(service.IPv6).AsSlice()}
	for name, from := range map[string]*net.UDPAddr{"from a link-local address": nil, "from a global address": global} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := serveOn(t, bed.Node, "udp6", ":0", echoUDP(t).addr)
			d := &net.Dialer{}
			if from != nil {
				d.LocalAddr = from
			}
			// The pod's default route leads to fe80::1, which the node has on its link.
			to := fmt.Sprintf("[fe80::1%%eth0]:%d", p.addr.Port())
			var c net.Conn
			require.Eventually(t, func() bool {
				var err error
				c, err = bed.Pod.DialFrom(t.Context(), d, "udp6", to)
				require.NoError(t, err)
				if from == nil && !addrOf(c.(*net.UDPConn)).Addr().IsLinkLocalUnicast() {
					return c.Close() != nil // it has none yet
				}
				return true
			}, patience, 10*time.Millisecond)
			defer c.Close()
			client := udpClient{c.(*net.UDPConn), t}
			assert.Equal(t, "from next door", client.ask("from next door"))
			require.Len(t, p.status(1000), 1)
			assert.Equal(t, from == nil, p.status(1000)[0].Client.Addr().IsLinkLocalUnicast())
			assert.Equal(t, "fe80::1", p.status(1000)[0].Local.WithZone("").String())
		})
	}
}

func TestCase16_UDPPassesLinksThatAreNarrowerThanTheDatagram(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "ip")
	bed := nettest.New(t)
	bed.Node.Output(t, "ip", "link", "set", nettest.NodeToClient, "mtu", "1400")
	bed.Client.Output(t, "ip", "link", "set", "eth0", "mtu", "1400")
	// A router stands between the server, on back, and the client.
	p := serveOn(t, bed.Back, "udp4", "10.10.2.2:0", echoUDP(t).addr)
	c, err := bed.Client.Dial(t.Context(), "udp", p.addr.String())
	require.NoError(t, err)
	defer c.Close()
	client := udpClient{c.(*net.UDPConn), t}
	for _, size := range []int{1450, 9000, 65507} {
		client.send(noise(size))
		assert.Equal(t, noise(size), client.receive(), "the first of that size arrives: %d", size)
	}
}

func TestUDPSocketOptions(t *testing.T) {
	t.Parallel()
	const mark = 0x4000000
	for _, family := range service.Families() {
		t.Run(string(family), func(t *testing.T) {
			t.Parallel()
			at, level, option := netip.AddrPortFrom(ownAddr(), 0), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER
			if family == service.IPv6 {
				at, level, option = netip.AddrPortFrom(netip.IPv6Loopback(), 0), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER
			}
			e := newUDPEndpoint(t, at, mirror)
			p := serveUDP(t, udpOptions{listen: at, mark: mark}, e.addr)
			newUDPClient(t, p.addr).ask("open a flow")

			p.flows.mu.Lock()
			flow := p.udpServer.group.byUse.first.socket.fd
			p.flows.mu.Unlock()
			get := func(fd, level, option int) int {
				v, err := unix.GetsockoptInt(fd, level, option)
				require.NoError(t, err)
				return v
			}
			assert.Equal(t, mark, get(flow, unix.SOL_SOCKET, unix.SO_MARK))
			assert.Equal(t, unix.IP_PMTUDISC_DONT, get(flow, level, option))

			raw, err := p.SyscallConn()
			require.NoError(t, err)
			require.NoError(t, raw.Control(func(fd uintptr) {
				assert.Zero(t, get(int(fd), unix.SOL_SOCKET, unix.SO_MARK), "what goes to clients is not a dial")
				assert.Equal(t, unix.IP_PMTUDISC_DONT, get(int(fd), level, option))
				assert.GreaterOrEqual(t, get(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF), receiveBuffer, "needs root")
			}))
		})
	}
}

// The child of TestCase13_UDPSurvivesEMFILE runs out of descriptors for real.
const outOfDescriptors = "UDP_TEST_OUT_OF_DESCRIPTORS"

func TestCase13_UDPSurvivesEMFILE(t *testing.T) {
	t.Parallel()
	if os.Getenv(outOfDescriptors) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.parallel=1")
		cmd.Env = append(os.Environ(), outOfDescriptors+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "--- PASS: "+t.Name())
		return
	}
	e := echoUDP(t)
	p := serveUDP(t, udpOptions{}, e.addr)
	old, fresh := newUDPClient(t, p.addr), newUDPClient(t, p.addr)
	assert.Equal(t, "old", old.ask("old"))

	var taken []*os.File
	for {
		f, err := os.Open(os.DevNull)
		if errors.Is(err, unix.EMFILE) {
			break
		}
		require.NoError(t, err)
		taken = append(taken, f)
	}
	for range 50 {
		fresh.send([]byte("no room"))
		assert.Equal(t, "still old", old.ask("still old"), "flows that exist go on")
	}
	p.eventually(func() bool { return p.dropped(dropNoDescriptor) == 50 })
	assert.Len(t, p.log.AllEntries(), 1)
	for _, f := range taken {
		require.NoError(t, f.Close())
	}
	assert.Equal(t, "room", fresh.ask("room"))
}

func TestUDPOutOfLocalPortsEvicts(t *testing.T) {
	if os.Getenv(outOfDescriptors) == "" {
		nettest.Need(t, "unshare", "ip") // for a namespace of its own, which has five local ports
		cmd := exec.Command("unshare", "-n", "sh", "-c",
			`ip link set lo up && echo 40000 40004 >/proc/sys/net/ipv4/ip_local_port_range && exec "$0" "$@"`,
			os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), outOfDescriptors+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "--- PASS: "+t.Name())
		return
	}
	e := newUDPEndpoint(t, netip.MustParseAddrPort("127.0.0.1:7"), mirror)
	p := serveUDP(t, udpOptions{listen: netip.MustParseAddrPort("127.0.0.1:9")}, e.addr)
	for i := range 20 {
		conn, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1000 + i}, net.UDPAddrFromAddrPort(p.addr))
		require.NoError(t, err)
		assert.Equal(t, "hello", udpClient{conn, t}.ask("hello"))
		require.NoError(t, conn.Close())
	}
	assert.Len(t, p.status(1000), 5)
	assert.EqualValues(t, 15, p.counters().ended[endedEvicted].Load())
}
