package main

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lines are a message's lines, each of which says whose it is.
func lines(text ...string) string {
	return "userspace-proxy: " + strings.Join(text, "\nuserspace-proxy: ") + "\n"
}

const aService = `apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  clusterIP: 10.96.0.1
  ports:
  - {port: 80}
`

// TestBadFiles: the message for a file that cannot be used names the file, the
// line, the object and the field, and says what to do.
func TestBadFiles(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		content string
		says    []string // FILE stands for the file's path
	}{
		"tab": {
			strings.Replace(aService, "  ports", "\tports", 1),
			[]string{`FILE:6: a tab indents this line (YAML is indented with spaces: put spaces in the tab's place)`},
		},
		"unknown kind": {
			strings.Replace(aService, "Service", "Servise", 1),
			[]string{`FILE:2: Servise default/web: kind: Servise is not read here (did you mean Service?)`},
		},
		"ports 0 and 70000": {
			strings.Replace(aService, "  - {port: 80}", "  - {name: a, port: 0}\n  - {name: b, port: 70000}", 1),
			[]string{
				`FILE:7: Service default/web: spec.ports[0].port: 0 is no port number (use 1 to 65535)`,
				`FILE:8: Service default/web: spec.ports[1].port: 70000 is no port number (use 1 to 65535)`,
			},
		},
		"bad address": {
			strings.Replace(aService, "10.96.0.1", "10.96.0.300", 1),
			[]string{`FILE:5: Service default/web: spec.clusterIP: "10.96.0.300" is no IP address (write it like 10.96.0.10 or fd00::10; names are not looked up)`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := write(t, t.TempDir(), "services.yaml", tt.content)
			for _, command := range [][]string{{"plan"}, {"run", "--log-level=error"}, {"--log-level=error"}} {
				code, stdout, stderr := run(t, "", append(command, "--file", path)...)
				assert.Equal(t, 2, code, command)
				assert.Empty(t, stdout, command)
				assert.Equal(t, strings.ReplaceAll(lines(tt.says...), "FILE", path), stderr, command)
			}
		})
	}
}

func TestBadUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := write(t, dir, "services.yaml", aService)
	missing := filepath.Join(dir, "missing.yaml")
	const seeRun = `see "userspace-proxy run --help"`

	for name, tt := range map[string]struct {
		args []string
		says []string
	}{
		"missing file": {
			[]string{"run", "--file", missing},
			[]string{"--file: " + missing + ": no such file or directory"},
		},
		"no source": {
			[]string{"run"},
			[]string{`no source of Services: give --file PATH, a YAML or JSON file or directory ("-" is standard input), or --kubeconfig FILE, or --etcd-servers URL, or try "userspace-proxy demo"`},
		},
		"no source, no command": {
			nil,
			[]string{`no source of Services: give --file PATH, a YAML or JSON file or directory ("-" is standard input), or --kubeconfig FILE, or --etcd-servers URL, or try "userspace-proxy demo"`},
		},
		"no source for a plan": {
			[]string{"plan"},
			[]string{`no source of Services: give --file PATH, a YAML or JSON file or directory ("-" is standard input)`},
		},
		"unknown flag":    {[]string{"run", "--fiel", path}, []string{"unknown flag: --fiel", seeRun}},
		"unknown command": {[]string{"rum"}, []string{`unknown command "rum": did you mean run?`, `see "userspace-proxy --help"`}},
		"stray argument":  {[]string{"run", "services.yaml"}, []string{`stray argument "services.yaml"; a file with Services is given with --file`, seeRun}},
		"stray argument, no command": {
			[]string{"services.yaml"},
			[]string{`unknown command "services.yaml"; a file with Services is given with --file`, `see "userspace-proxy --help"`},
		},
		"stray argument of version": {[]string{"version", "x"}, []string{`stray argument "x"`, `see "userspace-proxy version --help"`}},
		"a time without a unit": {
			[]string{"run", "-f", path, "--udp-timeout=5"},
			[]string{`invalid argument "5" for "--udp-timeout" flag: time: missing unit in duration "5"`, seeRun},
		},
		"everything at once": {
			[]string{
				"run", "-f", missing, "-f", "", "--startup-grace=0s", "--nodeport-addresses=192.0.2.1,eth0", "--redirect=ipvs",
				"--bind-address=here", "--proxy-port-range=9-1", "--mark=0", "--tcp-keepalive=-1s",
				"--healthz-bind-address=10256", "--metrics-bind-address=localhost:1", "--log-level=loud", "--log-format=xml",
				"--dial-timeout=0s", "--tcp-half-close-timeout=-1s", "--udp-timeout=0s", "--sync-period=0s",
				"--min-sync-period=0s", "--tcp-idle-timeout=-1s", "--drain-timeout=-1s", "--max-udp-flows=0",
			},
			[]string{
				"--file: " + missing + ": no such file or directory",
				"--file: the path is empty",
				`--nodeport-addresses: "192.0.2.1" is neither a range of addresses like 192.0.2.0/24 nor primary, localhost or all`,
				`--nodeport-addresses: "eth0" is neither a range of addresses like 192.0.2.0/24 nor primary, localhost or all`,
				`--redirect: must be auto, nftables, iptables or none, got "ipvs"`,
				`--bind-address: "here" is not an IP address`,
				`--proxy-port-range: must be FIRST-LAST within 1-65535 like 10000-29999, got "9-1"`,
				`--mark: must be a number from 1 to 0xffffffff, got "0"`,
				`--startup-grace: must be above 0, got 0s`,
				`--drain-timeout: must not be below 0, got -1s`,
				`--tcp-keepalive: must not be below 0, got -1s`,
				`--healthz-bind-address: "10256" is not an IP address and a port like 127.0.0.1:10249 or [::1]:10249, nor a port alone like :10256 for all addresses of this machine, nor empty for none`,
				`--metrics-bind-address: "localhost:1" is not an IP address and a port like 127.0.0.1:10249 or [::1]:10249, nor a port alone like :10256 for all addresses of this machine, nor empty for none`,
				`--log-level: must be error, warning, info or debug, got "loud"`,
				`--log-format: must be text or json, got "xml"`,
				`--dial-timeout must be above 0, got 0s`,
				`--tcp-half-close-timeout must be above 0, got -1s`,
				`--udp-timeout must be above 0, got 0s`,
				`--sync-period must be above 0, got 0s`,
				`--min-sync-period must be above 0, got 0s`,
				`--tcp-idle-timeout must not be below 0, got -1s`,
				`--max-udp-flows must be above 0, got 0`,
			},
		},
		"a listening address that rules cannot lead to": {
			[]string{"run", "-f", path, "--bind-address=127.0.0.1"},
			[]string{"--bind-address: rules cannot lead clients to 127.0.0.1: give an address of this node that is no loopback address, or leave it out"},
		},
		"a listening address that is not there": {
			[]string{"run", "-f", path, "--redirect=nftables", "--bind-address=203.0.113.77", "--log-level=error", "--healthz-bind-address=127.0.0.1:0", "--metrics-bind-address="},
			[]string{"--bind-address: 203.0.113.77 is not an address of this node"},
		},
		"a kubeconfig that is missing": {
			[]string{"run", "--kubeconfig", missing},
			[]string{"--kubeconfig: " + missing + ": no such file or directory"},
		},
		"everything about the API server at once": {
			[]string{
				"run", "--kubeconfig", path, "--config-sync-period=0s", "--kube-api-qps=0", "--kube-api-burst=-1",
				"--kube-api-content-type=text/plain",
			},
			[]string{
				"--config-sync-period: must be above 0, got 0s",
				"--kube-api-qps: must be above 0 and at most 2147483647, got 0",
				"--kube-api-burst: must be above 0, got -1",
				`--kube-api-content-type: must be one of application/json, application/yaml, application/vnd.kubernetes.protobuf, got "text/plain"`,
				"--kubeconfig: " + path + ": it is no kubeconfig, but an object of another kind",
			},
		},
		"connections of nobody to trace": {
			[]string{"run", "-f", path, "--trace-connections=web,service=shop/", "--log-level=warning"},
			[]string{
				`--trace-connections: must be service=NAMESPACE/NAME, or with :PORT, a port's name, behind it, or service=NAME for any namespace; got "web"`,
				`--trace-connections: must be service=NAMESPACE/NAME, or with :PORT, a port's name, behind it, or service=NAME for any namespace; got "service=shop/": name "": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`,
				`--trace-connections: writes at level info, which --log-level=warning leaves out`,
			},
		},
		"a master that is no URL": {
			[]string{"run", "--master", "http://a:b:c"},
			[]string{`--master: "http://a:b:c": host must be a URL or a host:port pair: "http://a:b:c"`},
		},
		"everything about etcd at once": {
			[]string{
				"run", "--etcd-servers", "127.0.0.1:2379,ftp://127.0.0.1:2379,http://127.0.0.1", "--etcd-servers=https://etcd/x,https://user@etcd:2379,http://etcd:port,",
				"--etcd-cafile", path, "--etcd-certfile", missing, "--etcd-keyfile", missing,
			},
			[]string{
				`--etcd-servers: "127.0.0.1:2379" is no URL: write http://HOST:PORT or https://HOST:PORT`,
				`--etcd-servers: "ftp://127.0.0.1:2379": write http:// or https:// in place of ftp://`,
				`--etcd-servers: "http://127.0.0.1": write a host and a port, like http://127.0.0.1:2379`,
				`--etcd-servers: "https://etcd/x": leave out what stands behind the port`,
				`--etcd-servers: "https://user@etcd:2379": the user is who a certificate says, see --etcd-certfile`,
				`--etcd-servers: "http://etcd:port" is no URL: invalid port ":port" after host`,
				`--etcd-servers: "" is no URL: write http://HOST:PORT or https://HOST:PORT`,
				`--etcd-servers: some are http:// and some https://: a cluster has one or the other`,
				`--etcd-cafile: ` + path + `: holds no certificate in PEM form`,
				`--etcd-certfile: ` + missing + `: no such file or directory`,
				`--etcd-keyfile: ` + missing + `: no such file or directory`,
			},
		},
		"etcd's files without https": {
			[]string{"run", "--etcd-servers=http://127.0.0.1:2379", "--etcd-cafile", path, "--etcd-keyfile", path},
			[]string{
				`--etcd-cafile: is not used with http:// servers: write https:// in --etcd-servers`,
				`--etcd-keyfile: is not used with http:// servers: write https:// in --etcd-servers`,
				`--etcd-cafile: ` + path + `: holds no certificate in PEM form`,
				`--etcd-keyfile: needs its certificate: give --etcd-certfile`,
			},
		},
		"etcd without its servers": {
			[]string{"run", "-f", path, "--etcd-prefix=/x", "--etcd-cafile=" + path},
			[]string{`--etcd-prefix: needs --etcd-servers`, `--etcd-cafile: needs --etcd-servers`},
		},
		"no etcd server": {
			[]string{"run", "-f", path, "--etcd-servers="},
			[]string{`--etcd-servers: names no server: write one or more, as in https://10.0.0.1:2379`},
		},
		"more requests than can be counted": {
			[]string{"run", "-f", path, "--kube-api-qps=9223372036854775807"},
			[]string{`--kube-api-qps: must be above 0 and at most 2147483647, got 9.223372e+18`},
		},
		"unknown form of a plan": {
			[]string{"plan", "-f", path, "-o", "ipvs"},
			[]string{`--output: must be text, json, nft or iptables, got "ipvs"`},
		},
		"rules of a plan without rules": {
			[]string{"plan", "-f", path, "-o", "nft", "--redirect=none"},
			[]string{"--output: there are no rules with --redirect=none"},
		},
		"explain without an address": {
			[]string{"explain", "tcp"},
			[]string{"give a protocol and an address with a port, as in: userspace-proxy explain tcp 10.96.0.10:80", `see "userspace-proxy explain --help"`},
		},
		"explain a name": {
			[]string{"explain", "tcp", "web:80"},
			[]string{`"web:80" is not an IP address and a port like 10.96.0.10:80 or [fd00::10]:80; names are not looked up`},
		},
		"explain in another form": {
			[]string{"explain", "tcp", "10.96.0.1:80", "-o", "yaml"},
			[]string{`--output: must be text or json, got "yaml"`},
		},
		"explain with the flags of a run, and none": {
			[]string{"explain", "tcp", "10.96.0.1:80", "--redirect=none"},
			[]string{"--redirect says what a run would do, and a running proxy is asked: give --file too, or leave it out"},
		},
		"explain a proxy and a file": {
			[]string{"explain", "tcp", "10.96.0.1:80", "--address=http://127.0.0.1:1", "-f", path},
			[]string{"--address asks a running proxy, and --file does not: give one of them"},
		},
		"explain at no address": {
			[]string{"explain", "tcp", "10.96.0.1:80", "--address=https://127.0.0.1"},
			[]string{`--address: "https://127.0.0.1" is not an address like http://127.0.0.1:10249`},
		},
		"status in another form": {
			[]string{"status", "-o", "yaml"},
			[]string{`--output: must be table or json, got "yaml"`},
		},
		"status of two Services": {
			[]string{"status", "web", "dns"},
			[]string{`stray argument "dns": give the name of one Service`, `see "userspace-proxy status --help"`},
		},
		"status of a Service in two namespaces": {
			[]string{"status", "shop/web", "-n", "other"},
			[]string{`--namespace: "shop/web" is asked for, and not in other`},
		},
		"status all the time": {
			[]string{"status", "--watch", "--interval=0s"},
			[]string{"--interval: must be above 0, got 0s"},
		},
		"status of no connections": {
			[]string{"status", "connections", "--most=0"},
			[]string{"--most: must be above 0, got 0"},
		},
		"a demo that does not move": {
			[]string{"demo", "--period=0s"},
			[]string{"--period: must be above 0, got 0s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := run(t, "", tt.args...)
			assert.Equal(t, 2, code)
			assert.Empty(t, stdout)
			assert.Equal(t, lines(tt.says...), stderr)
		})
	}
}

// TestPortTaken: who has a port that a flag names ends the program with 1, where
// that is asked for.
func TestPortTaken(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	at := taken.Addr().String()
	path := write(t, t.TempDir(), "services.yaml", aService)
	for _, flags := range [][2]string{
		{"--healthz-bind-address", "--metrics-bind-address"},
		{"--metrics-bind-address", "--healthz-bind-address"},
	} {
		code, _, stderr := run(t, "", "run", "-f", path, "--redirect=none", "--log-level=error", "--bind-address-hard-fail", flags[0]+"="+at, flags[1]+"=")
		assert.Equal(t, 1, code)
		assert.Equal(t, lines(flags[0]+" "+at+": bind: address already in use"), stderr)
	}
}

func TestStandardInput_empty(t *testing.T) {
	t.Parallel()
	code, _, stderr := run(t, "", "plan", "-f", "-")
	assert.Equal(t, 2, code)
	assert.Equal(t, lines("standard input: is empty, as a file is that is being written (to have no objects in it, say so by a comment or by kind: List with items: [])"), stderr)
}

func TestVersion(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := run(t, "", "version")
	assert.Zero(t, code)
	assert.Regexp(t, `^userspace-proxy \S+ \(go1\.\S+, \w+/\w+\)\n$`, stdout)
	assert.Empty(t, stderr)
}

func TestUnderscoresAreDashes(t *testing.T) {
	t.Parallel()
	path := write(t, t.TempDir(), "services.yaml", aService)
	code, _, stderr := run(t, "", "plan", "--file", path, "--proxy_port_range=9-1")
	assert.Equal(t, 2, code)
	assert.Equal(t, lines(`--proxy-port-range: must be FIRST-LAST within 1-65535 like 10000-29999, got "9-1"`), stderr)
}

// TestHelp: what --help prints, for each command; no line is wider than a
// terminal.
func TestHelp(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"", "run", "plan", "explain", "status", "status connections", "status problems", "demo", "cleanup", "version"} {
		code, stdout, stderr := run(t, "", append(strings.Fields(command), "--help")...)
		assert.Zero(t, code)
		assert.Empty(t, stderr)
		name := strings.ReplaceAll("userspace-proxy-"+command, " ", "-")
		golden(t, "help/"+strings.TrimSuffix(name, "-")+".txt", stdout)
		for line := range strings.Lines(stdout) {
			assert.LessOrEqual(t, len(line), 81, line)
			assert.Equal(t, strings.TrimRight(line, " \n"), strings.TrimSuffix(line, "\n"), "ends in spaces")
		}
	}
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		code, stdout, _ := run(t, "", "completion", shell)
		assert.Zero(t, code)
		assert.Contains(t, stdout, programName)
	}
	code, stdout, _ := run(t, "", "__complete", "run", "--redir")
	assert.Zero(t, code)
	assert.Contains(t, stdout, "--redirect")
}
