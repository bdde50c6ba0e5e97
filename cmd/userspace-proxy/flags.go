package main

import (
	"fmt"
	"runtime"
	"time"

	"github.com/spf13/pflag"

	"github.com/userspace-proxy/userspace-proxy/config/etcd"
	"github.com/userspace-proxy/userspace-proxy/proxy"
)

// groupAnnotation marks a flag with the heading that help shows it under.
const groupAnnotation = "group"

// The headings, in the order of help.
const (
	groupReplace  = "In kube-proxy's place"
	groupSources  = "Sources of Services"
	groupNode     = "This node"
	groupRedirect = "Leading clients here"
	groupTCP      = "TCP"
	groupUDP      = "UDP"
	groupLife     = "Reconciling and stopping"
	groupStatus   = "Health, metrics, status"
	groupLog      = "Log"
	groupOutput   = "Output"
	groupDemo     = "Demo"
	groupAsk      = "What to ask for"
)

func groups() []string {
	return []string{groupAsk, groupReplace, groupSources, groupNode, groupRedirect, groupTCP, groupUDP, groupLife, groupStatus, groupLog, groupOutput, groupDemo}
}

// grouped adds flags under a heading.
func grouped(fs *pflag.FlagSet, group string, add func(*pflag.FlagSet)) {
	some := pflag.NewFlagSet("", pflag.ContinueOnError)
	add(some)
	some.VisitAll(func(f *pflag.Flag) { f.Annotations = map[string][]string{groupAnnotation: {group}} })
	fs.AddFlagSet(some)
}

// addRunFlags adds all flags of run.
func (o *options) addRunFlags(fs *pflag.FlagSet) {
	o.addReplaceFlags(fs)
	o.addSourceFlags(fs)
	o.addEtcdFlags(fs)
	o.addNodeFlags(fs)
	grouped(fs, groupNode, o.tuning.addFlags)
	o.addRedirectFlags(fs)
	grouped(fs, groupSources, o.api.addFlags)
	grouped(fs, groupSources, func(fs *pflag.FlagSet) {
		fs.DurationVar(&o.startupGrace, "startup-grace", 30*time.Second, "wait this long for all sources before serving what is known")
	})
	grouped(fs, groupTCP, func(fs *pflag.FlagSet) {
		fs.DurationVar(&o.dialTimeout, "dial-timeout", 5*time.Second, "give up connecting after this time, all attempts at endpoints together")
		fs.DurationVar(&o.tcpIdleTimeout, "tcp-idle-timeout", 0, "close a connection without traffic after this time; 0 is never")
		fs.DurationVar(&o.tcpHalfCloseTimeout, "tcp-half-close-timeout", 2*time.Minute, "close a connection without traffic after this time once one side has closed")
		fs.DurationVar(&o.tcpKeepalive, "tcp-keepalive", 30*time.Second, "send keepalive probes this often; 0 is never")
		fs.IntVar(&o.maxConnections, "max-connections", 0, "reset new connections while this `number` of them is open; 0 is no limit but that of file descriptors, at which they wait")
		fs.IntVar(&o.maxPerClient, "max-connections-per-client", 0, "reset a client's new connections while this `number` of its own is open; 0 is no limit. The annotation userspace-proxy/max-connections limits a Service")
	})
	grouped(fs, groupUDP, func(fs *pflag.FlagSet) {
		fs.DurationVar(&o.udpTimeout, "udp-timeout", 30*time.Second, "forget a flow without traffic after this time")
		fs.IntVar(&o.maxUDPFlows, "max-udp-flows", 65536, "keep at most this `number` of flows")
	})
	grouped(fs, groupLife, func(fs *pflag.FlagSet) {
		fs.DurationVar(&o.syncPeriod, "sync-period", 30*time.Second, "reconcile in full this often, without a change too")
		fs.DurationVar(&o.minSyncPeriod, "min-sync-period", 100*time.Millisecond, "leave this much time between two reconciles")
		fs.DurationVar(&o.drainTimeout, "drain-timeout", 30*time.Second, "after the signal to stop, give open connections this long; a second signal ends them at once")
	})
	grouped(fs, groupLife, func(fs *pflag.FlagSet) {
		fs.BoolVar(&o.takeover, "takeover", false, "where another userspace-proxy serves this node, take over from it: that one serves the connections that it has to their end, however long, and all others are this one's. Needs Linux and rules")
	})
	grouped(fs, groupStatus, func(fs *pflag.FlagSet) {
		fs.BoolVar(&o.hardFail, "bind-address-hard-fail", false, "end when --healthz-bind-address or --metrics-bind-address cannot be had; otherwise it is tried again every 5s")
		fs.StringVar(&o.healthzAddress, "healthz-bind-address", ":10256", "serve /healthz, /livez and /readyz at this `address`; a port alone is all addresses of this machine, in the families that it has; empty is nowhere")
		fs.StringVar(&o.metricsAddress, "metrics-bind-address", "127.0.0.1:10249", "serve /metrics and /statusz at this `address`; empty is nowhere")
		fs.BoolVar(&o.metricsPerEndpoint, "metrics-per-endpoint", false, "have metrics of each endpoint too: some more for each address behind each Service")
		fs.BoolVar(&o.profiling, "profiling", false, "serve /debug/pprof/ beside the metrics")
	})
	grouped(fs, groupLog, func(fs *pflag.FlagSet) {
		fs.StringVar(&o.logLevel, "log-level", "info", "write what is of this `level` or above: error, warning, info, debug")
		fs.StringVar(&o.logFormat, "log-format", "text", "write in this `format`: text, json")
		addTraceFlag(fs, &o.trace)
		fs.IntVarP(&o.verbosity, "v", "v", 0, "kube-proxy's `number` for the level; 4 and above is debug")
	})
}

// addReplaceFlags adds what a manifest of kube-proxy's may say.
func (o *options) addReplaceFlags(fs *pflag.FlagSet) {
	grouped(fs, groupReplace, func(fs *pflag.FlagSet) {
		fs.StringVar(&o.config.path, "config", "", "take from kube-proxy's configuration `file` (a KubeProxyConfiguration) what no flag says; when it changes this ends with 0, to be started again")
		fs.StringVar(&o.writeConfigTo, "write-config-to", "", "write what flags and --config come to into this `file`, in the form that --config reads, and end")
		fs.BoolVar(&o.cleanup, "cleanup", false, "do what the command cleanup does, and end")
		fs.BoolVar(&o.initOnly, "init-only", false, "set what the flags of conntrack ask for, which takes root, and end; the proxy can then run with CAP_NET_ADMIN alone")
		fs.BoolVar(&o.version, "version", false, "print the version, and end")
	})
	hidden := pflag.NewFlagSet("", pflag.ContinueOnError)
	hidden.StringVar(&o.mode, "proxy-mode", "", "may be userspace")
	hidden.StringVar(&o.showHidden, "show-hidden-metrics-for-version", "", "means nothing here: no metric is hidden")
	o.renamed.addFlags(hidden)
	addIgnoredFlags(hidden)
	hidden.VisitAll(func(f *pflag.Flag) { f.Hidden = true })
	fs.AddFlagSet(hidden)
}

// addSourceFlags adds where Services come from and what they may ask for.
func (o *options) addSourceFlags(fs *pflag.FlagSet) {
	grouped(fs, groupSources, func(fs *pflag.FlagSet) {
		fs.StringArrayVarP(&o.files, "file", "f", nil, "read Services and EndpointSlices from this `path`: a YAML or JSON file, a directory of such files, or - for standard input. May be given more than once; of two Services with one name the first is served")
		fs.BoolVar(&o.allowExternalIPs, "allow-external-ips", true, "serve the addresses in spec.externalIPs")
		fs.BoolVar(&o.allowLoopbackEndpoints, "allow-loopback-endpoints", false, "take loopback addresses as endpoints, from files")
	})
}

// addEtcdFlags adds where Services are in an etcd.
func (o *options) addEtcdFlags(fs *pflag.FlagSet) {
	grouped(fs, groupSources, func(fs *pflag.FlagSet) {
		fs.StringSliceVar(&o.etcd.Servers, "etcd-servers", nil, "read Services, EndpointSlices and Endpoints from the etcd at these `URLs`, a comma-separated list; a cluster's own etcd for instance, without its API server")
		fs.StringVar(&o.etcd.Prefix, "etcd-prefix", etcd.DefaultPrefix, "the `prefix` of the keys in etcd")
		fs.StringVar(&o.etcd.CAFile, "etcd-cafile", "", "the PEM `file` with the CA certificates that etcd's servers are checked against; without it the system's")
		fs.StringVar(&o.etcd.CertFile, "etcd-certfile", "", "the PEM `file` with the certificate to show to etcd; its user must be allowed to read the prefix")
		fs.StringVar(&o.etcd.KeyFile, "etcd-keyfile", "", "the PEM `file` with the key of that certificate")
	})
}

// addNodeFlags adds what is said of the machine.
func (o *options) addNodeFlags(fs *pflag.FlagSet) {
	grouped(fs, groupNode, func(fs *pflag.FlagSet) {
		fs.StringVar(&o.hostname, "hostname-override", "", "the `name` of this node, where it is not the host name")
		o.local.addFlags(fs)
		fs.StringSliceVar(&o.nodePortAddrs, "nodeport-addresses", []string{"primary"}, "serve node ports on these addresses: a `list` of CIDRs, localhost, all, and primary, which is the node's own address in each family")
	})
}

// addRedirectFlags adds how clients are led to listeners.
func (o *options) addRedirectFlags(fs *pflag.FlagSet) {
	grouped(fs, groupRedirect, func(fs *pflag.FlagSet) {
		fs.StringVar(&o.redirect, "redirect", defaultRedirect(runtime.GOOS), "the `way` clients are led here: nftables; iptables; none, which is to listen on the Services' own addresses, where this machine has them, and needs no rights; or auto, which is the first of nftables and iptables that works here")
		fs.StringVar(&o.bindAddress, "bind-address", "0.0.0.0", "have rules lead clients to this `address` of the node; the default stands for addresses of the proxy's own, on the interface lo")
		fs.StringVar(&o.portRange, "proxy-port-range", "10000-29999", "take the ports of listeners from this `range`")
		fs.StringVar(&o.mark, "mark", "0x4000000", "the `bit` that marks the proxy's own packets, which rules leave alone")
		fs.BoolVar(&o.transparent, "transparent", false, "connect to endpoints from the client's own address where their replies are certain to come by this node, as kube-proxy does: for whoever asks where the endpoint is on this node, and for this node's pods wherever it is; needs Linux and rules")
		fs.StringVar(&o.transparentMark, "transparent-mark", "0x8000000", "the `bit` that marks the replies, which policy routing delivers here, with --transparent")
	})
}

// addOutputFlags adds the form of what is printed.
func addOutputFlags(fs *pflag.FlagSet, form *string) {
	grouped(fs, groupOutput, func(fs *pflag.FlagSet) {
		fs.StringVarP(form, "output", "o", "text", "print this `form`: text, json, or nft or iptables, those rules alone")
	})
}

// addTraceFlag adds whose connections are told of step by step.
func addTraceFlag(fs *pflag.FlagSet, trace *[]string) {
	fs.StringSliceVar(trace, "trace-connections", nil, fmt.Sprintf("log every step of the connections and UDP flows of some Services, %d lines a second at most, for learning and to find faults: a `list` of service=NAMESPACE/NAME, of service=NAMESPACE/NAME:PORT for the port of that name alone, or service=NAME for any namespace", proxy.TracedLines))
}

// defaultAddress is where the status server of a proxy is unless flags say otherwise.
const defaultAddress = "http://127.0.0.1:10249"

// addAddressFlag adds where a running proxy is asked.
func addAddressFlag(fs *pflag.FlagSet, address *string) {
	grouped(fs, groupAsk, func(fs *pflag.FlagSet) {
		fs.StringVar(address, "address", defaultAddress, "ask the proxy whose --metrics-bind-address is this `address`")
	})
}

// addFormFlag adds the form of an answer.
func addFormFlag(fs *pflag.FlagSet, form *string) {
	grouped(fs, groupOutput, func(fs *pflag.FlagSet) {
		fs.StringVarP(form, "output", "o", "text", "print this `form`: text or json")
	})
}

// defaultRedirect: rules are Linux's.
func defaultRedirect(goos string) string {
	if goos == "linux" {
		return redirectAuto
	}
	return redirectNone
}
