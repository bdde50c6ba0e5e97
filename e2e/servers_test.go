package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// daemon runs a server on a host until the test ends, and then ends it as a
// supervisor does: one with processes of its own ends those.
func daemon(t *testing.T, host *nettest.Host, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var out nettest.Output
	cmd := host.Command(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = patience
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // ended by a signal
		if t.Failed() {
			t.Logf("%s on %s:\n%s", name, host.Name, &out)
		}
	})
}

// requirePort waits until a server accepts at an address.
func requirePort(t *testing.T, host *nettest.Host, address string) {
	t.Helper()
	eventually(t, func() bool {
		c, err := host.Dial(t.Context(), "tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}, saying("somebody to accept at %s", address))
}

func TestNginxAndCurl(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nginx", "curl")
	eachWay(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		dir := t.TempDir()
		large := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // 16 MB
		require.NoError(t, os.WriteFile(filepath.Join(dir, "large"), large, 0o644))
		require.NoError(t, os.Chmod(dir, 0o755))
		var endpoints []string
		for i := range 2 {
			v4, v6 := bed.Back.Addrs(service.IPv4)[i], bed.Back.Addrs(service.IPv6)[i]
			conf := filepath.Join(dir, fmt.Sprintf("nginx%d.conf", i))
			require.NoError(t, os.WriteFile(conf, []byte(fmt.Sprintf(`
daemon off; master_process off; user root; pid %[1]s/pid%[2]d; error_log stderr;
events {}
http {
	access_log off;
	client_body_temp_path %[1]s/body%[2]d; proxy_temp_path %[1]s/proxy%[2]d; fastcgi_temp_path %[1]s/fastcgi%[2]d;
	uwsgi_temp_path %[1]s/uwsgi%[2]d; scgi_temp_path %[1]s/scgi%[2]d;
	server {
		listen %[3]s:8080; listen [%[4]s]:8080;
		location / { return 200 "nginx %[2]d\n"; }
		location = /large { root %[1]s; }
	}
}
`, dir, i, v4, v6)), 0o644))
			daemon(t, bed.Back, "nginx", "-e", "stderr", "-c", conf)
			requirePort(t, bed.Back, fmt.Sprintf("%s:8080", v4))
			endpoints = append(endpoints, fmt.Sprintf("%s:8080", v4), fmt.Sprintf("[%s]:8080", v6))
		}
		lead.start(t, bed.Node, manifest(changing(map[string][]string{"stream": endpoints})))
		requirePort(t, bed.Client, "10.96.0.10:80")

		for _, from := range []*nettest.Host{bed.Client, bed.Pod, bed.Node} {
			for _, url := range []string{"http://10.96.0.10/", "http://[fd96::10]/", "http://10.10.2.1:30080/"} {
				// Four processes: four connections.
				got := make(map[string]int)
				for range 4 {
					got[from.Output(t, "curl", "-sS", "--fail", url)]++
				}
				assert.Equal(t, map[string]int{"nginx 0\n": 2, "nginx 1\n": 2}, got, "%s from %s", url, from.Name)
			}
		}
		sum := sha256.Sum256([]byte(bed.Client.Output(t, "curl", "-sS", "--fail", "http://10.96.0.10/large")))
		assert.Equal(t, sha256.Sum256(large), sum, "16 MB arrive as they were sent")
		twice := bed.Client.Output(t, "curl", "-sS", "--fail", "http://10.96.0.10/", "http://10.96.0.10/")
		assert.Len(t, slices.Compact(strings.Fields(strings.ReplaceAll(twice, "nginx ", ""))), 1, "one kept-alive connection, one endpoint")
	})
}

func TestRedisAndItsBenchmark(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "redis-server", "redis-cli", "redis-benchmark")
	eachWay(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		v4, v6 := bed.Back.Addr(service.IPv4).String(), bed.Back.Addr(service.IPv6).String()
		daemon(t, bed.Back, "redis-server", "--port", "6379", "--bind", v4, v6, "--protected-mode", "no",
			"--save", "", "--appendonly", "no", "--dir", t.TempDir())
		requirePort(t, bed.Back, v4+":6379")
		o := object{name: "redis", clusterIPs: []string{"10.96.0.20", "fd96::20"},
			ports:     []port{{"redis", service.TCP, 6379, 0}},
			endpoints: map[string][]string{"redis": {v4 + ":6379", "[" + v6 + "]:6379"}}}
		lead.start(t, bed.Node, manifest(o))
		requirePort(t, bed.Client, "10.96.0.20:6379")

		for _, from := range []*nettest.Host{bed.Client, bed.Pod, bed.Node} {
			for _, a := range o.clusterIPs {
				value := from.Name + " " + a
				assert.Equal(t, "OK\n", from.Output(t, "redis-cli", "-h", a, "set", "key", value))
				assert.Equal(t, value+"\n", from.Output(t, "redis-cli", "-h", a, "get", "key"))
			}
		}
		// 50 connections, requests of 1 to 10,000 bytes, also many at once on one connection.
		for _, args := range [][]string{
			{"-t", "ping,set,get", "-n", "5000", "-c", "50"},
			{"-t", "set,get", "-n", "1000", "-c", "10", "-d", "10000"},
			{"-t", "set,lrange_100", "-n", "2000", "-c", "10", "-P", "16"},
		} {
			out := bed.Client.Output(t, "redis-benchmark", append([]string{"-h", "10.96.0.20", "-q"}, args...)...)
			assert.Regexp(t, `SET: [0-9.]+ requests per second`, out)
			assert.NotContains(t, strings.ToLower(out), "error")
		}
	})
}

// TestDNSOnOnePortNumber: a DNS server answers over UDP and TCP on one number.
func TestDNSOnOnePortNumber(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "dnsmasq", "dig")
	eachWay(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		o := object{name: "dns", clusterIPs: []string{"10.96.0.10", "fd96::10"},
			ports:     []port{{"dns", service.UDP, 53, 0}, {"dns-tcp", service.TCP, 53, 0}},
			endpoints: map[string][]string{}}
		for i := range 2 {
			v4, v6 := bed.Back.Addrs(service.IPv4)[i].String(), bed.Back.Addrs(service.IPv6)[i].String()
			daemon(t, bed.Back, "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts",
				"--user=root", "--pid-file=", "--log-facility=-", "--bind-interfaces", "--except-interface=lo",
				"--listen-address="+v4, "--listen-address="+v6,
				"--address=/service.test/192.0.2.53", fmt.Sprintf("--txt-record=who.test,server %d", i))
			requirePort(t, bed.Back, v4+":53")
			for _, p := range o.ports {
				o.endpoints[p.name] = append(o.endpoints[p.name], v4+":53", "["+v6+"]:53")
			}
		}
		lead.start(t, bed.Node, manifest(o))
		requirePort(t, bed.Client, "10.96.0.10:53")

		for _, from := range []*nettest.Host{bed.Client, bed.Pod, bed.Node} {
			for _, server := range []string{"@10.96.0.10", "@fd96::10"} {
				for _, over := range []string{"+notcp", "+tcp"} {
					assert.Equal(t, "192.0.2.53\n", from.Output(t, "dig", server, over, "+short", "+tries=1", "a.service.test", "A"),
						"%s %s from %s", server, over, from.Name)
					got := make(map[string]int)
					for range 4 {
						got[from.Output(t, "dig", server, over, "+short", "+tries=1", "who.test", "TXT")]++
					}
					assert.Equal(t, map[string]int{"\"server 0\"\n": 2, "\"server 1\"\n": 2}, got, "%s %s from %s", server, over, from.Name)
				}
			}
		}
	})
}
