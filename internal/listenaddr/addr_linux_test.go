package listenaddr_test

import (
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/userspace-proxy/userspace-proxy/internal/listenaddr"
	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// onNode runs fn on the node of a bed of its own.
func onNode(t *testing.T, fn func(node *nettest.Host)) {
	t.Helper()
	t.Parallel()
	nettest.Need(t, "ip")
	bed := nettest.New(t)
	bed.Node.Do(t, func() { fn(bed.Node) })
}

// onLo is what lo has, a line for each address, lifetimes included.
func onLo(t *testing.T, node *nettest.Host) string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(node.Output(t, "ip", "-o", "addr", "show", "dev", "lo")) {
		lines = append(lines, strings.Join(strings.Fields(strings.ReplaceAll(line, `\`, " ")), " "))
	}
	return strings.Join(lines, "\n")
}

const ensured = `1: lo inet 127.0.0.1/8 scope host lo valid_lft forever preferred_lft forever
1: lo inet 169.254.77.1/32 scope host lo valid_lft forever preferred_lft forever
1: lo inet6 fd77::1/128 scope global nodad deprecated valid_lft forever preferred_lft 0sec
1: lo inet6 ::1/128 scope host noprefixroute valid_lft forever preferred_lft forever`

func normal(s string) string {
	// Versions of the kernel and of ip differ in these words.
	return strings.NewReplacer(" noprefixroute", "", " proto kernel_lo", "").Replace(s)
}

func TestEnsureTwiceThenRemoveTwice(t *testing.T) {
	onNode(t, func(node *nettest.Host) {
		before := onLo(t, node)
		for range 2 {
			got, err := listenaddr.Ensure(listenaddr.Default())
			require.NoError(t, err)
			assert.Equal(t, listenaddr.Default(), got.Listen)
			assert.Empty(t, got.Missing)
			assert.Equal(t, normal(ensured), normal(onLo(t, node)))
		}
		for range 2 {
			require.NoError(t, listenaddr.Remove(listenaddr.Default()))
			assert.Equal(t, before, onLo(t, node))
		}
	})
}

func TestEnsureMendsWhatIsWrong(t *testing.T) {
	onNode(t, func(node *nettest.Host) {
		node.Output(t, "ip", "addr", "add", "169.254.77.1/32", "dev", "lo") // scope global
		node.Output(t, "ip", "addr", "add", "fd77::1/64", "dev", "lo")      // preferred
		_, err := listenaddr.Ensure(listenaddr.Default())
		require.NoError(t, err)
		assert.Equal(t, normal(ensured), normal(onLo(t, node)))
	})
}

func TestCase31_RemovedAddressIsFound(t *testing.T) {
	onNode(t, func(node *nettest.Host) {
		_, err := listenaddr.Ensure(listenaddr.Default())
		require.NoError(t, err)
		require.NoError(t, listenaddr.Check(listenaddr.Default()))
		// As nodes with keepalived have it: any address can be bound then.
		node.Output(t, "sysctl", "-w", "net.ipv4.ip_nonlocal_bind=1", "net.ipv6.ip_nonlocal_bind=1")
		for _, addr := range []string{"169.254.77.1/32", "fd77::1/128"} {
			node.Output(t, "ip", "addr", "del", addr, "dev", "lo")
			err := listenaddr.Check(listenaddr.Default())
			require.ErrorIs(t, err, listenaddr.ErrDamaged)
			require.ErrorContains(t, err, strings.Split(addr, "/")[0])
			_, err = listenaddr.Ensure(listenaddr.Default())
			require.NoError(t, err)
			require.NoError(t, listenaddr.Check(listenaddr.Default()))
		}
		node.Output(t, "sysctl", "-w", "net.ipv6.conf.lo.disable_ipv6=1")
		require.NoError(t, listenaddr.Check(listenaddr.Default()), "no address of a family that the node has not")
	})
}

func TestAddressesListenAndAreNoSource(t *testing.T) {
	onNode(t, func(node *nettest.Host) {
		_, err := listenaddr.Ensure(listenaddr.Default())
		require.NoError(t, err)
		for f, addr := range listenaddr.Default() {
			l, err := net.Listen("tcp", netip.AddrPortFrom(addr, 0).String())
			require.NoError(t, err)
			c, err := net.DialTimeout("tcp", l.Addr().String(), nettest.Patience)
			require.NoError(t, err, "the node reaches %s", addr)
			assert.NoError(t, c.Close())
			assert.NoError(t, l.Close())
			// The pod's interface has no address of the node's, so any other
			// will do; the nearest by prefix is ours.
			pod := map[service.Family]string{service.IPv4: "169.254.77.9", service.IPv6: "fd77::9"}[f]
			node.Output(t, "ip", "route", "add", pod, "dev", nettest.NodeToPod)
			c, err = net.Dial("udp", netip.AddrPortFrom(netip.MustParseAddr(pod), 9).String()) // sends nothing
			require.NoError(t, err)
			assert.NotEqual(t, addr.String(), c.LocalAddr().(*net.UDPAddr).IP.String(), "source of a dial to a pod")
			assert.NoError(t, c.Close())
		}
	})
}

func TestIPv6SwitchedOffIsOneLine(t *testing.T) {
	onNode(t, func(node *nettest.Host) {
		node.Sysctl(t, "net/ipv6/conf/all/disable_ipv6", "1")
		got, err := listenaddr.Ensure(listenaddr.Default())
		require.NoError(t, err)
		assert.Equal(t, map[service.Family]netip.Addr{service.IPv4: netip.MustParseAddr("169.254.77.1")}, got.Listen)
		assert.Equal(t, map[service.Family]string{
			service.IPv6: "IPv6 is switched off on lo (net.ipv6.conf.lo.disable_ipv6)",
		}, got.Missing)
		require.NoError(t, listenaddr.Remove(listenaddr.Default()))
	})
}

func TestLoDownIsAnError(t *testing.T) {
	onNode(t, func(node *nettest.Host) {
		node.Output(t, "ip", "link", "set", "lo", "down")
		_, err := listenaddr.Ensure(listenaddr.Default())
		assert.EqualError(t, err, "ensuring the listening addresses: the interface lo is down: bring it up with `ip link set lo up`")
	})
}

func TestAddressOfAnotherInterfaceIsLeftAlone(t *testing.T) {
	onNode(t, func(node *nettest.Host) {
		node.Output(t, "ip", "addr", "add", "169.254.77.1/32", "dev", nettest.NodeToBack)
		_, err := listenaddr.Ensure(listenaddr.Default())
		require.ErrorContains(t, err, "ensuring the listening address 169.254.77.1: another interface (number ")
		assert.ErrorContains(t, err, "choose other addresses with --bind-address")
		require.NoError(t, listenaddr.Remove(listenaddr.Default()))
		assert.Contains(t, node.Output(t, "ip", "addr", "show", "dev", nettest.NodeToBack), "169.254.77.1/32")
	})
}

func TestNoRight(t *testing.T) {
	onNode(t, func(*nettest.Host) {
		ns, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		defer func() { assert.NoError(t, unix.Close(ns)) }()
		got := make(chan error, 1)
		go func() {
			runtime.LockOSThread() // the thread ends with the goroutine, and its lack of rights too
			if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
				got <- err
				return
			}
			header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			none := make([]unix.CapUserData, 2)
			if err := unix.Capset(&header, &none[0]); err != nil {
				got <- err
				return
			}
			_, err := listenaddr.Ensure(listenaddr.Default())
			got <- err
		}()
		select {
		case err := <-got:
			require.ErrorIs(t, err, listenaddr.ErrNoRight)
			assert.EqualError(t, err, "ensuring the listening address 169.254.77.1: "+
				"no right to change addresses: needs root or CAP_NET_ADMIN, or use --redirect=none")
		case <-time.After(nettest.Patience):
			t.Fatal("no answer")
		}
	})
}
