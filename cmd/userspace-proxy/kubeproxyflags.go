package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// renamedFlags are flags that kube-proxy has under other names, so that its
// manifests are understood.
type renamedFlags struct {
	syncPeriod, minSyncPeriod, logFormat, healthzPort, metricsPort string
}

func (r *renamedFlags) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&r.syncPeriod, "iptables-sync-period", "", "kube-proxy's name of --sync-period")
	fs.StringVar(&r.minSyncPeriod, "iptables-min-sync-period", "", "kube-proxy's name of --min-sync-period")
	fs.StringVar(&r.logFormat, "logging-format", "", "kube-proxy's name of --log-format")
	fs.StringVar(&r.healthzPort, "healthz-port", "", "the port of --healthz-bind-address; 0 is nowhere")
	fs.StringVar(&r.metricsPort, "metrics-port", "", "the port of --metrics-bind-address; 0 is nowhere")
}

// settings are what they come to.
func (r *renamedFlags) settings() []setting {
	return []setting{
		{"--iptables-sync-period", "sync-period", zeroIsDefault(r.syncPeriod)},
		{"--iptables-min-sync-period", "min-sync-period", zeroIsDefault(r.minSyncPeriod)},
		{"--logging-format", "log-format", r.logFormat},
		{"--healthz-port", "healthz-bind-address", addressOf("", r.healthzPort)},
		{"--metrics-port", "metrics-bind-address", addressOf("127.0.0.1", r.metricsPort)},
	}
}

// zeroIsDefault is a time whose 0 has kube-proxy do as it thinks right.
func zeroIsDefault(duration string) string {
	if regexp.MustCompile(`^0+(ns|us|ms|s|m|h)?$`).MatchString(duration) {
		return ""
	}
	return duration
}

// nowhere as a setting's value is an empty address, which is none.
const nowhere = " "

func addressOf(address, port string) string {
	switch port {
	case "":
		return ""
	case "0":
		return nowhere
	}
	return address + ":" + port
}

// ignoredFlag is a flag of kube-proxy's that means nothing here.
type ignoredFlag string

// Set takes anything.
func (f *ignoredFlag) Set(s string) error { *f = ignoredFlag(s); return nil }

// String is what was given.
func (f *ignoredFlag) String() string { return string(*f) }

// Type is that of the value.
func (f *ignoredFlag) Type() string { return "string" }

// ignoredFlags are those that take a value, and switches, which need none.
func ignoredFlags() (values, switches []string) {
	values = strings.Fields(`
		feature-gates log-flush-frequency log-json-info-buffer-size log-text-info-buffer-size vmodule
		iptables-masquerade-bit
		ipvs-sync-period ipvs-min-sync-period ipvs-scheduler ipvs-exclude-cidrs ipvs-tcp-timeout ipvs-tcpfin-timeout ipvs-udp-timeout
		network-name source-vip root-hnsendpoint-name
		boot-id-file machine-id-file
		log-backtrace-at log-dir log-file log-file-max-size stderrthreshold
		resource-container conntrack-max`)
	switches = strings.Fields(`
		masquerade-all iptables-localhost-nodeports ipvs-strict-arp
		log-json-split-stream log-text-split-stream
		enable-dsr forward-healthcheck-vip windows-service
		add-dir-header alsologtostderr logtostderr one-output skip-headers skip-log-headers
		cleanup-ipvs`)
	return values, switches
}

// addIgnoredFlags adds them. Help shows none of them.
func addIgnoredFlags(fs *pflag.FlagSet) {
	values, switches := ignoredFlags()
	for _, name := range slices.Concat(values, switches) {
		f := fs.VarPF(new(ignoredFlag), name, "", "means nothing here; kube-proxy has it")
		if slices.Contains(switches, name) {
			f.NoOptDefVal = "true"
		}
	}
}

// warnOfIgnored is one warning for all of them that were given.
func warnOfIgnored(given []string) []string {
	values, switches := ignoredFlags()
	all := slices.Concat(values, switches, []string{"show-hidden-metrics-for-version"})
	var ignored []string
	for _, name := range given {
		if slices.Contains(all, name) {
			ignored = append(ignored, "--"+name)
		}
	}
	slices.Sort(ignored)
	if len(ignored) == 0 {
		return nil
	}
	return []string{"these flags of kube-proxy mean nothing here and may be left out: " + strings.Join(ignored, ", ")}
}

// checkHiddenVersion reads a minor version as kube-proxy's flag takes it. No
// metric is hidden here, so that nothing more is to be done about it.
func checkHiddenVersion(version string) error {
	if version != "" && !regexp.MustCompile(`^\d+\.\d+$`).MatchString(version) {
		return fmt.Errorf("must be a minor version like 1.36, got %q", version)
	}
	return nil
}
