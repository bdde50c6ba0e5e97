package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// good is a Service that nothing is wrong with.
func good() object {
	return object{name: "good", clusterIPs: []string{"10.96.0.10"}, ports: []port{{"http", service.TCP, 80, 0}},
		endpoints: map[string][]string{"http": {"10.10.2.2:8080"}}}
}

// TestBadFiles: what is wrong with a file at the start ends the proxy with 2
// and a message that says where; nothing has been done by then.
func TestBadFiles(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft")
	bed := nettest.New(t)
	with := func(change func(*object)) string {
		o := good()
		change(&o)
		return manifest(good(), o)
	}
	for name, test := range map[string]struct {
		content string
		says    []string // beside the file's name
	}{
		"tab": {strings.Replace(manifest(good()), "  ports:", "\tports:", 1),
			[]string{":9: ", "tab"}},
		"unknown kind": {manifest(good()) + "---\napiVersion: v1\nkind: Sarvice\nmetadata: {name: x}\n",
			[]string{"Sarvice", "kind"}},
		"unknown field": {strings.Replace(manifest(good()), "  ports:", "  prots:", 1),
			[]string{"Service default/good", "spec.prots"}},
		"port 0": {with(func(o *object) { o.name, o.ports[0].number = "zero", 0 }),
			[]string{"Service default/zero", "spec.ports[0].port", "0", "65535"}},
		"port 70000": {with(func(o *object) { o.name, o.ports[0].number = "large", 70000 }),
			[]string{"Service default/large", "spec.ports[0].port", "70000", "65535"}},
		"bad address": {strings.ReplaceAll(manifest(good()), "10.96.0.10", "10.96.0.300"),
			[]string{"Service default/good", "spec.clusterIP", "10.96.0.300"}},
		"bad endpoint address": {strings.ReplaceAll(manifest(good()), "10.10.2.2", "10.10.2"),
			[]string{"EndpointSlice default/good-http-ipv4-8080", "endpoints[0].addresses[0]", "10.10.2"}},
		"half a file": {manifest(good())[:150], nil},
		"not text":    {"\x00\x01\x02", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "services.yaml")
			require.NoError(t, os.WriteFile(file, []byte(test.content), 0o644))
			for _, args := range [][]string{{"run", "--redirect=nftables"}, {"plan"}} {
				r := command(t, bed.Node, nil, append(args, "--file="+file)...)
				assert.Equal(t, 2, r.code, "%v: %s", args, r.stderr)
				for _, s := range append(test.says, file) {
					assert.Contains(t, r.stderr, s, "%v", args)
				}
				t.Logf("%s: %s", args[0], r.stderr)
			}
			assert.Empty(t, ruleset(t, bed.Node))
		})
	}
}

// TestBadUsage: wrong flags and places end the proxy with a message that names
// them.
func TestBadUsage(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft", "setpriv")
	dir := t.TempDir()
	// Nobody must get as far as the faults that are meant.
	require.NoError(t, os.Chmod(dir, 0o755))
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	file := filepath.Join(dir, "services.yaml")
	require.NoError(t, os.WriteFile(file, []byte(manifest(good())), 0o644))
	secret := filepath.Join(dir, "secret.d")
	require.NoError(t, os.Mkdir(secret, 0o700))
	missing := filepath.Join(dir, "missing.yaml")
	asNobody := []string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"}

	for name, test := range map[string]struct {
		as   []string
		env  []string // nil: this process's
		args []string
		code int
		says []string
	}{
		"missing file":         {args: []string{"run", "--file", missing}, code: 2, says: []string{"--file", missing, "no such file"}},
		"missing file, plan":   {args: []string{"plan", "--file", missing}, code: 2, says: []string{"--file", missing, "no such file"}},
		"no source":            {args: []string{"run"}, code: 2, says: []string{"--file"}},
		"unknown flag":         {args: []string{"run", "--fiel", file}, code: 2, says: []string{"--fiel"}},
		"unknown command":      {args: []string{"rum"}, code: 2, says: []string{"rum", "run"}},
		"stray argument":       {args: []string{"run", "--file", file, "services.yaml"}, code: 2, says: []string{`"services.yaml"`}},
		"bad redirect":         {args: []string{"run", "--file", file, "--redirect=ipvs"}, code: 2, says: []string{"--redirect", "ipvs", "nftables", "none"}},
		"bad duration":         {args: []string{"run", "--file", file, "--udp-timeout=-1s"}, code: 2, says: []string{"--udp-timeout", "-1s"}},
		"bad port range":       {args: []string{"run", "--file", file, "--proxy-port-range=9-1"}, code: 2, says: []string{"--proxy-port-range", "9-1"}},
		"bad address":          {args: []string{"run", "--file", file, "--metrics-bind-address=here"}, code: 2, says: []string{"--metrics-bind-address", "here"}},
		"unreadable directory": {as: asNobody, args: []string{"run", "--file", secret, "--redirect=none"}, code: 2, says: []string{"--file", secret, "permission denied"}},
		"no right to change rules": {as: asNobody, args: []string{"run", "--file", file, "--redirect=nftables"}, code: 1,
			says: []string{"nftables", "NET_ADMIN", "--redirect=none"}},
		"no right to change rules, auto": {as: asNobody, args: []string{"run", "--file", file}, code: 1,
			says: []string{"NET_ADMIN", "--redirect=none"}},
		"no right to clean up": {as: asNobody, args: []string{"cleanup"}, code: 1, says: []string{"NET_ADMIN"}},
		"no nft":               {env: []string{"PATH="}, args: []string{"run", "--file", file, "--redirect=nftables"}, code: 1, says: []string{"nft", "PATH"}},
		"no nft, auto":         {env: []string{"PATH="}, args: []string{"run", "--file", file}, code: 1, says: []string{"nft", "--redirect=none"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bed := nettest.New(t) // one each: some get as far as taking ports
			r := runToEnd(t, bed.Node, test.env, append(append(test.as, os.Getenv(binaryVariable)), test.args...)...)
			assert.Equal(t, test.code, r.code, "%s", r.stderr)
			for _, s := range test.says {
				assert.Contains(t, r.stderr, s)
			}
			assert.NotContains(t, r.stderr, "goroutine ")
			t.Log(r.stderr)
			assert.Empty(t, ruleset(t, bed.Node))
		})
	}
}

// requireProblem waits until the status tells of one problem that says all of
// this.
func requireProblem(t *testing.T, p *proxy, says ...string) {
	t.Helper()
	var problems []string
	eventually(t, func() bool {
		problems = p.problems(t)
		return slices.ContainsFunc(problems, func(one string) bool {
			return !slices.ContainsFunc(says, func(s string) bool { return !strings.Contains(one, s) })
		})
	}, func() string { return fmt.Sprintf("a problem that says %q; there are %q", says, problems) })
}

// TestTwoServicesOnOneAddressAndPort: the elder is served, the other reported.
func TestTwoServicesOnOneAddressAndPort(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		tcp := serveNamed(t, bed.Back, "tcp", 8080, "a", "b")
		one := object{name: "one", clusterIPs: []string{"10.96.0.10"}, ports: []port{{"http", service.TCP, 80, 0}},
			endpoints: map[string][]string{"http": tcp[:1]}}
		two := one
		two.name = "two"
		two.ports = []port{{"http", service.TCP, 80, 0}, {"other", service.TCP, 81, 0}}
		two.endpoints = map[string][]string{"http": tcp[2:3], "other": tcp[2:3]}
		p := lead.start(t, bed.Node, manifest(one, two))
		requireAnswers(t, bed.Client, target{"tcp", "10.96.0.10:80"}, "a")
		requireAnswers(t, bed.Client, target{"tcp", "10.96.0.10:81"}, "b") // its other port is served
		requireProblem(t, p, "default/two", "default/one", "10.96.0.10:80")

		p.write(t, manifest(two)) // the elder goes: the other's turn
		requireAnswers(t, bed.Client, target{"tcp", "10.96.0.10:80"}, "b")
		p.stop(t)
	})
}

// TestNodePortTakenByADaemon: the daemon keeps its port, the Service's other
// portals are served, the port is a problem.
func TestNodePortTakenByADaemon(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		primary := bed.Node.Addr(service.IPv4)
		bed.Node.ServeTCP(t, netip.AddrPortFrom(primary, 30080).String(), nettest.Banner("daemon"))
		tcp := serveNamed(t, bed.Back, "tcp", 8080, "a")
		p := lead.start(t, bed.Node, manifest(changing(map[string][]string{"stream": tcp})))
		requireAnswers(t, bed.Client, target{"tcp", "10.96.0.10:80"}, "a")
		requireAnswers(t, bed.Client, target{"tcp", "10.10.2.1:30080"}, "daemon")
		requireProblem(t, p, "default/web", "30080")
		p.stop(t)
	})
}

// TestStatusPortTaken: another process has the port of the status page, and that
// is to be the end.
func TestStatusPortTaken(t *testing.T) {
	t.Parallel()
	bed := nettest.New(t)
	bed.Node.ServeTCP(t, "127.0.0.1:10249", nettest.Echo)
	file := filepath.Join(t.TempDir(), "services.yaml")
	require.NoError(t, os.WriteFile(file, []byte(manifest(good())), 0o644))
	r := command(t, bed.Node, nil, "run", "--redirect=nftables", "--bind-address-hard-fail", "--file", file)
	assert.Equal(t, 1, r.code)
	for _, s := range []string{"--metrics-bind-address", "127.0.0.1:10249", "address already in use"} {
		assert.Contains(t, r.stderr, s)
	}
	t.Log(r.stderr)
}

// TestCase38_BadFileWhileRunning: what was there before stays in force and the
// fault is told with its line; a good file ends it.
func TestCase38_BadFileWhileRunning(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		tcp := serveNamed(t, bed.Back, "tcp", 8080, "a", "b")
		p := lead.start(t, bed.Node, manifest(changing(map[string][]string{"stream": tcp[:2]})))
		to := target{"tcp", "10.96.0.10:80"}
		requireAnswers(t, bed.Client, to, "a")

		bad := manifest(changing(map[string][]string{"stream": tcp[2:]}))
		before, after, _ := strings.Cut(bad, "  ports:")
		line := strings.Count(before, "\n") + 1
		p.write(t, before+"\tports:"+after)
		requireProblem(t, p, p.file, fmt.Sprintf("line %d", line), "tab")
		requireAnswers(t, bed.Client, to, "a")

		require.NoError(t, os.Remove(p.file)) // gone: the last state stays
		requireProblem(t, p, p.file, "does not exist")
		requireAnswers(t, bed.Client, to, "a")

		p.write(t, bad)
		requireAnswers(t, bed.Client, to, "b")
		p.stop(t)
	})
}
