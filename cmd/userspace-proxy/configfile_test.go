package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const configHead = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

// effective runs --write-config-to and returns what was written.
func effective(t *testing.T, args ...string) (text, stderr string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "effective.yaml")
	code, stdout, stderr := run(t, "", append(args, "--write-config-to="+path)...)
	require.Zero(t, code, stderr)
	assert.Empty(t, stdout)
	written, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(written), stderr
}

// fieldOf is a field of a configuration, by its path.
func fieldOf(t *testing.T, text, path string) any {
	t.Helper()
	var all map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text), &all))
	var at any = all
	for name := range strings.SplitSeq(path, ".") {
		at = at.(map[string]any)[name]
	}
	return at
}

// TestConfig_eachField: each field that means something has its effect, and a
// flag that says otherwise wins.
func TestConfig_eachField(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		field string
		value string // as YAML has it
		want  any    // in the effective configuration
		flag  string // says otherwise
		wins  any    // and then stands there
	}{
		{"clientConnection.kubeconfig", "/a", "/a", "--kubeconfig=/b", "/b"},
		{"clientConnection.contentType", "application/json", "application/json", "--kube-api-content-type=application/yaml", "application/yaml"},
		{"clientConnection.qps", "7.5", 7.5, "--kube-api-qps=8", 8.},
		{"clientConnection.burst", "11", 11., "--kube-api-burst=12", 12.},
		{"logging.format", "json", "json", "--log-format=text", "text"},
		{"logging.verbosity", "2", 2., "-v=4", 4.},
		{"hostnameOverride", "a", "a", "--hostname-override=b", "b"},
		{"bindAddress", "192.0.2.1", "192.0.2.1", "--bind-address=192.0.2.2", "192.0.2.2"},
		{"healthzBindAddress", "192.0.2.1:1", "192.0.2.1:1", "--healthz-bind-address=192.0.2.2:2", "192.0.2.2:2"},
		{"healthzBindAddress", "192.0.2.1", "192.0.2.1:10256", "--healthz-bind-address=", ""},
		{"healthzBindAddress", "0.0.0.0", "0.0.0.0:10256", "--healthz-bind-address=:1", ":1"},
		{"metricsBindAddress", "192.0.2.1:1", "192.0.2.1:1", "--metrics-bind-address=192.0.2.2:2", "192.0.2.2:2"},
		{"metricsBindAddress", "'::'", "[::]:10249", "--metrics-bind-address=::1", "[::1]:10249"},
		{"bindAddressHardFail", "true", true, "--bind-address-hard-fail=false", false},
		{"oomScoreAdj", "-7", -7., "--oom-score-adj=8", 8.},
		{"oomScoreAdj", "0", 0., "--oom-score-adj=8", 8.},
		{"conntrack.maxPerCore", "0", 0., "--conntrack-max-per-core=7", 7.},
		{"conntrack.min", "8", 8., "--conntrack-min=9", 9.},
		{"conntrack.tcpEstablishedTimeout", "0s", "0s", "--conntrack-tcp-timeout-established=1h", "1h0m0s"},
		{"conntrack.tcpCloseWaitTimeout", "1m", "1m0s", "--conntrack-tcp-timeout-close-wait=2m", "2m0s"},
		{"conntrack.tcpBeLiberal", "true", true, "--conntrack-tcp-be-liberal=false", false},
		{"conntrack.udpTimeout", "40s", "40s", "--conntrack-udp-timeout=50s", "50s"},
		{"conntrack.udpStreamTimeout", "140s", "2m20s", "--conntrack-udp-timeout-stream=150s", "2m30s"},
		{"enableProfiling", "true", true, "--profiling=false", false},
		{"showHiddenMetricsForVersion", "'1.36'", "1.36", "--show-hidden-metrics-for-version=1.35", "1.35"},
		{"mode", "userspace", "userspace", "--proxy-mode=", "userspace"},
		{"iptables.syncPeriod", "1m", "1m0s", "--sync-period=2m", "2m0s"},
		{"iptables.minSyncPeriod", "1s", "1s", "--min-sync-period=2s", "2s"},
		{"nodePortAddresses", "[192.0.2.0/24, localhost]", []any{"192.0.2.0/24", "localhost"}, "--nodeport-addresses=all", []any{"all"}},
		{"clusterCIDR", "10.1.0.0/16", "10.1.0.0/16", "--cluster-cidr=10.2.0.0/16", "10.2.0.0/16"},
		{"detectLocalMode", "NodeCIDR", "NodeCIDR", "--detect-local-mode=ClusterCIDR", "ClusterCIDR"},
		{"detectLocal.bridgeInterface", "cbr0", "cbr0", "--pod-bridge-interface=cbr1", "cbr1"},
		{"detectLocal.interfaceNamePrefix", "veth", "veth", "--pod-interface-name-prefix=cali", "cali"},
		{"configSyncPeriod", "1m", "1m0s", "--config-sync-period=2m", "2m0s"},
		{"portRange", "20000-20100", "20000-20100", "--proxy-port-range=1-2", "1-2"},
		{"portRange", "20000+100", "20000-20100", "--proxy-port-range=1-2", "1-2"},
		{"portRange", "0-0", "10000-29999", "--proxy-port-range=1-2", "1-2"},
		{"udpIdleTimeout", "10s", "10s", "--udp-timeout=20s", "20s"},
	} {
		t.Run(tt.field, func(t *testing.T) {
			t.Parallel()
			text := configHead
			if outer, inner, ok := strings.Cut(tt.field, "."); ok {
				text += outer + ": {" + inner + ": " + tt.value + "}\n"
			} else {
				text += tt.field + ": " + tt.value + "\n"
			}
			file := write(t, t.TempDir(), "config.yaml", text)
			got, stderr := effective(t, "--config", file)
			assert.Equal(t, tt.want, fieldOf(t, got, tt.field))
			assert.NotContains(t, stderr, "level=warning")

			got, _ = effective(t, "--config", file, tt.flag)
			assert.Equal(t, tt.wins, fieldOf(t, got, tt.field))

			// What was written comes to the same.
			file = write(t, t.TempDir(), "config.yaml", got)
			again, _ := effective(t, "--config", file)
			if tt.wins != "" { // a file cannot say "nowhere"
				assert.Equal(t, got, again)
			}
		})
	}
}

// TestConfig_kubeadm: what files of kubeadm come to.
func TestConfig_kubeadm(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"1.14", "1.37"} {
		got, stderr := effective(t, "--config=../../internal/kubeproxy/testdata/kubeadm-"+version+".yaml", "--hostname-override=node-1")
		golden(t, "config/kubeadm-"+version+".yaml", got)
		var warnings []string
		for line := range strings.Lines(stderr) {
			if strings.Contains(line, "level=warning") {
				warnings = append(warnings, line)
			}
		}
		if version == "1.37" {
			assert.Empty(t, warnings)
			continue
		}
		require.Len(t, warnings, 3)
		assert.Contains(t, warnings[0], `kubeadm-1.14.yaml: is read leniently, without what is wrong with it: unknown field \"conntrack.max\"; unknown field \"resourceContainer\"`)
		assert.Contains(t, warnings[1], "these fields concern proxies in the kernel and mean nothing here: iptables.masqueradeBit, ipvs.syncPeriod")
		assert.Contains(t, warnings[2], "udpIdleTimeout: servers whose answers take longer than 250ms, DNS among them, are not heard; leave it out for 30s")
	}
}

// TestConfig_ipv6: where the listening address is an IPv6 one the metrics stand on
// IPv6, as kube-proxy's do, and health in both families, as everywhere.
func TestConfig_ipv6(t *testing.T) {
	t.Parallel()
	file := write(t, t.TempDir(), "config.yaml", configHead+"bindAddress: '::'\n")
	got, _ := effective(t, "--config", file)
	assert.Equal(t, ":10256", fieldOf(t, got, "healthzBindAddress"))
	assert.Equal(t, "[::1]:10249", fieldOf(t, got, "metricsBindAddress"))
	got, _ = effective(t, "--config", file, "--healthz-bind-address=0.0.0.0:1")
	assert.Equal(t, "0.0.0.0:1", fieldOf(t, got, "healthzBindAddress"))
}

// TestConfig_faults: all at once, each where its value is from.
func TestConfig_faults(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing.yaml")
	services := write(t, dir, "services.yaml", aService)
	file := write(t, dir, "config.yaml", configHead+`
bindAddress: here
healthzBindAddress: localhost:1
nodePortAddresses: [eth0]
clientConnection: {qps: -1}
iptables: {syncPeriod: -1s}
udpIdleTimeout: -1s
mode: ipvs
portRange: 9-1
oomScoreAdj: 1001
`)
	code, _, stderr := run(t, "", "--config", file, "--file", services, "--mark=0", "--dial-timeout=0s")
	assert.Equal(t, 2, code)
	assert.Equal(t, lines(
		file+`: mode: "ipvs" is a proxy in the kernel, and this one is in user space: leave it out or say userspace`,
		file+`: oomScoreAdj: must be from -1000 to 1000, got 1001`,
		file+`: nodePortAddresses: "eth0" is neither a range of addresses like 192.0.2.0/24 nor primary, localhost or all`,
		file+`: bindAddress: "here" is not an IP address`,
		file+`: portRange: must be FIRST-LAST within 1-65535 like 10000-29999, got "9-1"`,
		`--mark: must be a number from 1 to 0xffffffff, got "0"`,
		file+`: clientConnection.qps: must be above 0 and at most 2147483647, got -1`,
		file+`: healthzBindAddress: "localhost:1" is not an IP address and a port like 127.0.0.1:10249 or [::1]:10249, nor a port alone like :10256 for all addresses of this machine, nor empty for none`,
		`--dial-timeout must be above 0, got 0s`,
		file+`: udpIdleTimeout must be above 0, got -1s`,
		file+`: iptables.syncPeriod must be above 0, got -1s`,
	), stderr)

	other := write(t, dir, "other.yaml", "apiVersion: v1\nkind: ConfigMap\n")
	for path, says := range map[string]string{
		missing: "no such file or directory",
		other:   "is an object of another kind or version than is read here (apiVersion: kubeproxy.config.k8s.io/v1alpha1, kind: KubeProxyConfiguration)",
	} {
		code, _, stderr = run(t, "", "--config", path, "--file", services, "--mark=0")
		assert.Equal(t, 2, code)
		assert.Equal(t, lines("--config: "+path+": "+says, `--mark: must be a number from 1 to 0xffffffff, got "0"`), stderr)
	}
}

// TestConfig_modes: kube-proxy's modes are none of ours, and it is said what is.
func TestConfig_modes(t *testing.T) {
	t.Parallel()
	for mode, says := range map[string]string{
		"iptables":    `"iptables" is a proxy in the kernel, and this one is in user space: leave it out or say userspace; to have clients led here by iptables give --redirect=iptables`,
		"nftables":    `"nftables" is a proxy in the kernel, and this one is in user space: leave it out or say userspace; to have clients led here by nftables give --redirect=nftables`,
		"ipvs":        `"ipvs" is a proxy in the kernel, and this one is in user space: leave it out or say userspace`,
		"kernelspace": `"kernelspace" is a proxy in the kernel, and this one is in user space: leave it out or say userspace`,
		"magic":       `must be userspace or empty, got "magic"`,
	} {
		file := write(t, t.TempDir(), "config.yaml", configHead+"mode: "+mode+"\n")
		services := write(t, t.TempDir(), "services.yaml", aService)
		for from, args := range map[string][]string{"--proxy-mode": {"--proxy-mode=" + mode}, file + ": mode": {"--config", file}} {
			code, _, stderr := run(t, "", append(args, "--file", services)...)
			assert.Equal(t, 2, code)
			assert.Equal(t, lines(from+": "+says), stderr)
		}
	}
}

// TestConfig_runs: a proxy that was told by a file alone serves, and ends with 0
// when the file says something else.
func TestConfig_runs(t *testing.T) {
	t.Parallel()
	named(t, "127.66.81.1:8001", "one")
	dir := t.TempDir()
	services := write(t, dir, "services.yaml", manifest("127.66.80.1", []int{8080}, "127.66.81.1:8001"))
	const config = configHead + "hostnameOverride: told\nhealthzBindAddress: 127.0.0.1:0\nmetricsBindAddress: 127.0.0.1:0\nenableProfiling: true\n" +
		"logging: {format: json, verbosity: 4}\nportRange: '0'\n"
	file := write(t, dir, "config.yaml", config)
	p := start(t, "", "--config", file, "--file", services, "--redirect=none", "--allow-loopback-endpoints")
	status := "http://" + find(t, &p.stderr, `"--metrics-bind-address: listening on ([0-9.:]+)"`)[1]
	requireAnswer(t, "127.66.80.1:8080", "one")
	assert.Equal(t, "told", look(t, status).Node.Name)
	assert.Contains(t, p.stderr.String(), `"level":"debug"`)
	code, _ := get(t, status+"/debug/pprof/cmdline")
	assert.Equal(t, http.StatusOK, code)
	_, mode := get(t, status+"/proxyMode")
	assert.Equal(t, "userspace", mode)
	_, body := get(t, status+"/configz")
	var configz map[string]map[string]any
	require.NoError(t, json.Unmarshal([]byte(body), &configz))
	assert.Equal(t, "told", configz["kubeproxy.config.k8s.io"]["hostnameOverride"])
	assert.Equal(t, "KubeProxyConfiguration", configz["kubeproxy.config.k8s.io"]["kind"])

	write(t, dir, "config.yaml", config) // the same again
	write(t, dir, "config.yaml", config+"# another\n")
	assert.Zero(t, p.wait(t))
	assert.Contains(t, p.stderr.String(), "--config: "+file+" has changed: ending, to be started again with what it says now")
}

// TestKubeProxyFlags_all: there is none in kube-proxy 1.37, on Linux or Windows,
// that is not known here.
func TestKubeProxyFlags_all(t *testing.T) {
	t.Parallel()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(options).addRunFlags(fs)
	for _, name := range strings.Fields(`
		bind-address bind-address-hard-fail boot-id-file cleanup cluster-cidr config config-sync-period
		conntrack-max-per-core conntrack-min conntrack-tcp-be-liberal conntrack-tcp-timeout-close-wait
		conntrack-tcp-timeout-established conntrack-udp-timeout conntrack-udp-timeout-stream detect-local-mode
		enable-dsr feature-gates forward-healthcheck-vip healthz-bind-address healthz-port hostname-override init-only
		iptables-localhost-nodeports iptables-masquerade-bit iptables-min-sync-period iptables-sync-period
		ipvs-exclude-cidrs ipvs-min-sync-period ipvs-scheduler ipvs-strict-arp ipvs-sync-period ipvs-tcp-timeout
		ipvs-tcpfin-timeout ipvs-udp-timeout kube-api-burst kube-api-content-type kube-api-qps kubeconfig
		log-flush-frequency log-json-info-buffer-size log-json-split-stream log-text-info-buffer-size
		log-text-split-stream logging-format machine-id-file masquerade-all master metrics-bind-address metrics-port
		network-name nodeport-addresses oom-score-adj pod-bridge-interface pod-interface-name-prefix profiling
		proxy-mode root-hnsendpoint-name show-hidden-metrics-for-version source-vip v version vmodule
		windows-service write-config-to`) {
		assert.NotNil(t, fs.Lookup(name), name)
	}
}

// TestKubeProxyFlags: an existing manifest starts, whatever flags of kube-proxy's
// it gives, and is told once which of them mean nothing.
func TestKubeProxyFlags(t *testing.T) {
	t.Parallel()
	text, stderr := effective(t, strings.Fields(`
		--feature-gates=A=true --iptables-masquerade-bit=14 --masquerade-all --iptables-localhost-nodeports=false --cleanup_ipvs=true
		--iptables-sync-period=1m --iptables-min-sync-period=0s --ipvs-scheduler=rr --logging-format=json --log-flush-frequency=5s
		--healthz-port=1 --metrics-port=0 --logtostderr --alsologtostderr=true --vmodule=a=1 --proxy-mode=userspace
		--show-hidden-metrics-for-version=1.36 --v=2`)...)
	assert.Equal(t, "1m0s", fieldOf(t, text, "iptables.syncPeriod"))
	assert.Equal(t, "100ms", fieldOf(t, text, "iptables.minSyncPeriod"))
	assert.Equal(t, "json", fieldOf(t, text, "logging.format"))
	assert.Equal(t, ":1", fieldOf(t, text, "healthzBindAddress"))
	assert.Empty(t, fieldOf(t, text, "metricsBindAddress"))
	assert.Equal(t, 1, strings.Count(stderr, `"level":"warning"`), stderr)
	assert.Contains(t, stderr, "these flags of kube-proxy mean nothing here and may be left out: --alsologtostderr, --cleanup-ipvs, --feature-gates, "+
		"--iptables-localhost-nodeports, --iptables-masquerade-bit, --ipvs-scheduler, --log-flush-frequency, --logtostderr, --masquerade-all, "+
		"--show-hidden-metrics-for-version, --vmodule\"")

	code, _, stderr := run(t, "", "--show-hidden-metrics-for-version=old", "--file=-")
	assert.Equal(t, 2, code)
	assert.Equal(t, lines(`--show-hidden-metrics-for-version: must be a minor version like 1.36, got "old"`), stderr)
}

// TestVersionFlag and --cleanup are what the commands are.
func TestVersionFlag(t *testing.T) {
	t.Parallel()
	_, want, _ := run(t, "", "version")
	for _, args := range [][]string{{"--version"}, {"run", "--version", "--file=/missing"}} {
		code, stdout, stderr := run(t, "", args...)
		assert.Zero(t, code)
		assert.Equal(t, want, stdout)
		assert.Empty(t, stderr)
	}
}
