package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// seen is a Service in both families and protocols, whose endpoint tells its
// clients the address that it sees them at.
type seen struct {
	object
	on map[service.Family]string // portal
}

// serveSeen has an endpoint on each host, on nodes of these names. The number tells
// Services apart.
func serveSeen(t *testing.T, number int, spec string, nodes map[*nettest.Host]string) seen {
	t.Helper()
	s := seen{object: object{
		name: fmt.Sprint("seen", number), clusterIPs: []string{fmt.Sprintf("10.96.3.%d", number), fmt.Sprintf("fd96::3:%d", number)},
		ports: []port{{"stream", service.TCP, 80, 30100 + number}, {"datagram", service.UDP, 80, 30100 + number}},
		about: make(map[netip.Addr]string), spec: spec,
	}, on: make(map[service.Family]string)}
	var all []string
	for h, node := range nodes {
		for _, f := range service.Families() {
			at := netip.AddrPortFrom(h.Addr(f), uint16(8100+number)).String()
			h.ServePeers(t, at)
			all = append(all, at)
			s.about[h.Addr(f)] = "nodeName: " + node
		}
	}
	s.endpoints = map[string][]string{"stream": all, "datagram": all}
	for i, f := range service.Families() {
		s.on[f] = net.JoinHostPort(s.clusterIPs[i], "80")
	}
	return s
}

// nodePort is the Service's on the node.
func (s seen) nodePort(bed *nettest.Bed, f service.Family) string {
	return net.JoinHostPort(bed.Node.Addr(f).String(), fmt.Sprint(s.ports[0].nodePort))
}

// requireSeen asks until, and then twice more, a host is seen at an address.
func requireSeen(t *testing.T, from *nettest.Host, to string, as netip.Addr) {
	t.Helper()
	var got string
	ask := func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), patience/4)
		defer cancel()
		banner, err := from.ReadBanner(ctx, to)
		datagram, err2 := from.ExchangeUDP(ctx, to, "who am I?")
		got = fmt.Sprintf("TCP %q %v, UDP %q %v", banner, err, datagram, err2)
		return banner == as.String() && datagram == as.String()
	}
	what := func() string { return fmt.Sprintf("%s to be seen at %v by %s: %s", from.Name, as, to, got) }
	eventually(t, ask, what)
	for range 2 {
		require.True(t, ask(), what())
	}
}

func transparentFlags() []string {
	return []string{"--transparent", "--hostname-override=node-a", "--min-sync-period=10ms", "--cluster-cidr=10.10.3.0/24,fd10:3::/32"}
}

// TestTransparent_whoIsSeen: endpoints see the client where their replies come by
// the node, else the node.
func TestTransparent_whoIsSeen(t *testing.T) {
	t.Parallel()
	eachRules(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		bridged := bed.AddBridge(t, 3)
		far := serveSeen(t, 1, "", map[*nettest.Host]string{bed.Back: "node-b"})
		near := serveSeen(t, 2, "externalTrafficPolicy: Local", map[*nettest.Host]string{bed.Pod: "node-a"})
		bridge := serveSeen(t, 3, "externalTrafficPolicy: Local", map[*nettest.Host]string{bridged[0]: "node-a"})
		run := lead.start(t, bed.Node, manifest(far.object, near.object, bridge.object), transparentFlags()...)
		for _, f := range service.Families() {
			node := bed.Node.Addr(f)
			for _, pod := range []*nettest.Host{bed.Pod, bridged[0], bridged[1]} {
				requireSeen(t, pod, far.on[f], pod.Addr(f))
			}
			requireSeen(t, bed.Client, near.nodePort(bed, f), bed.Client.Addr(f))
			requireSeen(t, bed.Client, near.on[f], bed.Client.Addr(f))
			requireSeen(t, bed.Client, bridge.nodePort(bed, f), bed.Client.Addr(f))
			requireSeen(t, bridged[2], near.on[f], bridged[2].Addr(f))
			requireSeen(t, bed.Pod, bridge.on[f], bed.Pod.Addr(f))

			requireSeen(t, bridged[1], bridge.on[f], bridged[1].Addr(f)) // on one bridge

			requireSeen(t, bed.Client, far.on[f], node) // the reply would go past the node
			requireSeen(t, bed.Node, far.on[f], node)
			// To itself; which address the node takes there is the kernel's choice.
			assert.NotEqual(t, bridged[0].Addr(f).String(), seenAs(t, bridged[0], bridge.on[f]))
			assert.NotEqual(t, bed.Pod.Addr(f).String(), seenAs(t, bed.Pod, near.on[f]))
			assert.NotEqual(t, bed.Client.Addr(f).String(), seenAs(t, bed.Node, near.nodePort(bed, f)))
		}
		run.stop(t)
	})
}

// seenAs is what a host is told.
func seenAs(t *testing.T, from *nettest.Host, to string) string {
	t.Helper()
	banner, err := from.ReadBanner(t.Context(), to)
	require.NoError(t, err)
	datagram, err := from.ExchangeUDP(t.Context(), to, "who am I?")
	require.NoError(t, err)
	require.Equal(t, banner, datagram)
	return banner
}

// traces are what the proxy, and --transparent, leave on a node, without what
// packets have added.
func traces(t *testing.T, node *nettest.Host, lead way) string {
	t.Helper()
	var all []string
	if lead.redirect == "iptables" {
		for _, line := range lead.dump(t, node) {
			if strings.Contains(line, "USERSPACE-PROXY") {
				all = append(all, line)
			}
		}
		all = append(all, node.Output(t, "nft", "--terse", "--stateless", "list", "ruleset", "bridge"))
	} else {
		lines := strings.Split(node.Output(t, "nft", "--terse", "--stateless", "list", "ruleset"), "\n")
		slices.Sort(lines) // tables stand in the order in which they were made
		all = append(all, lines...)
	}
	for _, family := range []string{"-4", "-6"} {
		all = append(all, node.Output(t, "ip", family, "rule"),
			runToEnd(t, node, nil, "ip", family, "route", "show", "table", "30576").stdout) // it fails where there is none
	}
	return strings.Join(all, "\n")
}

// TestTransparent_leavesNothing: without the flag there is nothing of it, also
// after a run with it; cleanup removes all of it.
func TestTransparent_leavesNothing(t *testing.T) {
	t.Parallel()
	eachRules(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		far := serveSeen(t, 1, "", map[*nettest.Host]string{bed.Back: "node-b"})
		fresh := traces(t, bed.Node, lead)
		start := func(flags ...string) string {
			run := lead.start(t, bed.Node, manifest(far.object), flags...)
			requireAnswers(t, bed.Client, target{"tcp", far.on[service.IPv4]}, bed.Node.Addr(service.IPv4).String())
			got := traces(t, bed.Node, lead)
			run.stop(t)
			return got
		}
		without := start()
		for _, word := range []string{"30576", "socket", "bridges", "REPLIES"} {
			assert.NotContains(t, without, word)
		}
		with := start(transparentFlags()...)
		for _, word := range []string{"30576", "socket", "userspace-proxy-bridges"} {
			assert.Contains(t, with, word)
		}
		assert.Equal(t, without, start())
		start(transparentFlags()...)
		clean := command(t, bed.Node, append(os.Environ(), lead.env...), "cleanup")
		assert.Zero(t, clean.code, clean.stderr)
		assert.Equal(t, fresh, traces(t, bed.Node, lead))
	})
}

// TestTransparent_heals: what somebody removes comes back.
func TestTransparent_heals(t *testing.T) {
	t.Parallel()
	eachRules(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		bridged := bed.AddBridge(t, 2)
		bridge := serveSeen(t, 3, "", map[*nettest.Host]string{bridged[0]: "node-a"})
		run := lead.start(t, bed.Node, manifest(bridge.object), transparentFlags()...)
		requireSeen(t, bridged[1], bridge.on[service.IPv4], bridged[1].Addr(service.IPv4))
		all := traces(t, bed.Node, lead)
		for _, damage := range []string{
			"ip -4 rule del table 30576", "ip -6 rule del table 30576", "ip -4 route flush table 30576", "ip -6 route flush table 30576",
			"nft delete table bridge userspace-proxy-bridges", "nft flush chain bridge userspace-proxy-bridges prerouting",
			"ip -4 rule add pref 76 fwmark 0x1 table 30576",
		} {
			restored := run.restored(t)
			bed.Node.Output(t, "sh", "-c", damage)
			eventually(t, func() bool { return run.restored(t) > restored && traces(t, bed.Node, lead) == all }, saying("it to come back after %q", damage))
		}
		for _, f := range service.Families() {
			requireSeen(t, bridged[1], bridge.on[f], bridged[1].Addr(f))
		}
		run.stop(t)
	})
}

// TestTransparent_connections: what else connections have to do, they do from the
// client's address too: try another endpoint where one refuses, half-close, reset
// each way, keep affinity.
func TestTransparent_connections(t *testing.T) {
	t.Parallel()
	eachRules(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		bridged := bed.AddBridge(t, 2)
		pairs := []struct {
			client, endpoint *nettest.Host
			node             string
		}{{bed.Pod, bed.Back, "node-b"}, {bridged[1], bridged[0], "node-a"}, {bed.Client, bed.Pod, "node-a"}}
		var all []object
		heard := make(chan error, 1)
		for i, pair := range pairs {
			all = append(all, serveTrying(t, i, pair.endpoint, pair.node, heard))
		}
		run := lead.start(t, bed.Node, manifest(all...), transparentFlags()...)
		for i, pair := range pairs {
			for j, f := range service.Families() {
				as := pair.client.Addr(f)
				at := func(port string) string { return net.JoinHostPort(all[i].clusterIPs[j], port) }
				requireTries(t, pair.client, as, at, heard)
			}
		}
		eventually(t, func() bool { return run.statusz(t).Descriptors.Traffic == 0 }, saying("every descriptor to be given back"))
		run.stop(t)
	})
}

// serveTrying is a Service of a host: port 80 has an endpoint that refuses and one
// that tells whom it sees and echoes; 81 resets when it has heard something; 82
// tells heard how its connections end; 83 has two endpoints, and affinity.
func serveTrying(t *testing.T, number int, host *nettest.Host, node string, heard chan<- error) object {
	t.Helper()
	o := object{
		name: fmt.Sprint("trying", number), affinity: true,
		clusterIPs: []string{fmt.Sprintf("10.96.4.%d", number+1), fmt.Sprintf("fd96::4:%d", number+1)},
		ports:      []port{{"echo", service.TCP, 80, 0}, {"reset", service.TCP, 81, 0}, {"cut", service.TCP, 82, 0}, {"named", service.TCP, 83, 0}},
		endpoints:  make(map[string][]string), about: make(map[netip.Addr]string),
	}
	for _, f := range service.Families() {
		a := host.Addr(f)
		o.about[a] = "nodeName: " + node
		serve := func(port string, number uint16, handle func(*net.TCPConn)) {
			at := netip.AddrPortFrom(a, number).String()
			if handle != nil {
				host.ServeTCP(t, at, handle)
			}
			o.endpoints[port] = append(o.endpoints[port], at)
		}
		serve("echo", 8190, nil)
		serve("echo", 8191, func(c *net.TCPConn) {
			nettest.Banner(netip.MustParseAddrPort(c.RemoteAddr().String()).Addr().Unmap().String())(c)
		})
		serve("reset", 8192, func(c *net.TCPConn) {
			_, _ = c.Read(make([]byte, 1))
			_ = c.SetLinger(0)
		})
		serve("cut", 8193, func(c *net.TCPConn) {
			_, err := io.Copy(c, c)
			heard <- err
		})
		serve("named", 8194, nettest.Banner("one"))
		serve("named", 8195, nettest.Banner("two"))
	}
	return o
}

// requireTries does as serveTrying's clients do.
func requireTries(t *testing.T, client *nettest.Host, as netip.Addr, at func(port string) string, heard <-chan error) {
	t.Helper()
	message := strings.Repeat("a long message\n", 10_000)
	for range 6 { // the first endpoint refuses, and rests
		got, err := client.ExchangeTCP(t.Context(), at("80"), message)
		require.NoError(t, err)
		require.Equal(t, as.String()+"\n"+message, got)
	}
	say := func(port string) (net.Conn, error) {
		conn, err := client.Dial(t.Context(), "tcp", at(port))
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		_, err = conn.Write([]byte("x"))
		require.NoError(t, err)
		_, err = conn.Read(make([]byte, 1))
		return conn, err
	}
	conn, err := say("81")
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.NoError(t, conn.Close())

	conn, err = say("82")
	require.NoError(t, err)
	require.NoError(t, conn.(*net.TCPConn).SetLinger(0))
	require.NoError(t, conn.Close())
	select {
	case err := <-heard:
		require.ErrorIs(t, err, syscall.ECONNRESET)
	case <-time.After(patience):
		require.Fail(t, "the endpoint has not heard that its client is gone")
	}

	first, err := client.ReadBanner(t.Context(), at("83"))
	require.NoError(t, err)
	for range 5 {
		again, err := client.ReadBanner(t.Context(), at("83"))
		require.NoError(t, err)
		require.Equal(t, first, again)
	}
}

// TestTransparent_kernelWithoutSockets: a kernel whose rules cannot ask for sockets
// is told of at the start, with what to load.
func TestTransparent_kernelWithoutSockets(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft")
	bed := nettest.New(t)
	nft, err := exec.LookPath("nft")
	require.NoError(t, err)
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nin=$(cat)\ncase \"$in\" in *'socket wildcard'*) echo 'Error: Could not process rule: No such file or directory' >&2; exit 1;; esac\n"+
		"printf '%%s\\n' \"$in\" | exec %s \"$@\"\n", nft)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "nft"), []byte(script), 0o755))
	env := append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	file := writeFile(t, manifest(one("web", "10.96.0.10", 80, 0, "10.10.2.2:80")))
	got := command(t, bed.Node, env, "run", "--file", file, "--redirect=nftables", "--transparent")
	require.Equal(t, 1, got.code, got.stderr)
	require.Contains(t, got.stderr, "load the module nft_socket (modprobe nft_socket; CONFIG_NFT_SOCKET), or do without --transparent")
	require.NotContains(t, bed.Node.Output(t, "nft", "list", "ruleset"), "userspace-proxy")
}
