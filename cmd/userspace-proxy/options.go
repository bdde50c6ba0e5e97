package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"

	"github.com/userspace-proxy/userspace-proxy/config/etcd"
	"github.com/userspace-proxy/userspace-proxy/config/file"
	"github.com/userspace-proxy/userspace-proxy/internal/node"
	"github.com/userspace-proxy/userspace-proxy/internal/status"
	"github.com/userspace-proxy/userspace-proxy/proxy"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// options are the flags: first as they were given, then, after complete, as
// they are meant. flags.go says what each is for.
type options struct {
	given []string // names of the flags that were given, in the order of the command line

	config           configFile
	writeConfigTo    string
	cleanup, version bool
	mode, showHidden string
	renamed          renamedFlags

	files                  []string
	etcd                   etcd.Options
	api                    apiOptions
	startupGrace           time.Duration
	allowExternalIPs       bool
	allowLoopbackEndpoints bool

	hostname      string
	nodePortAddrs []string
	hardFail      bool
	initOnly      bool
	tuning        tuningOptions
	local         localDetection

	redirect    string
	bindAddress string
	portRange   string
	mark        string

	takeover        bool
	transparent     bool
	transparentMark string

	syncPeriod, minSyncPeriod time.Duration
	drainTimeout              time.Duration

	dialTimeout, tcpIdleTimeout, tcpHalfCloseTimeout, tcpKeepalive time.Duration

	maxConnections, maxPerClient int

	udpTimeout  time.Duration
	maxUDPFlows int

	healthzAddress, metricsAddress string
	profiling                      bool
	metricsPerEndpoint             bool

	trace               []string
	logLevel, logFormat string
	verbosity           int

	meant meant
}

// meant is what must be read from the text of flags.
type meant struct {
	nodePorts node.Selection
	listen    map[service.Family]netip.Addr // a chosen listening address; empty: the proxy's own
	ports     service.PortRange
	mark      uint32
	replies   uint32            // --transparent-mark, with --transparent; else 0
	localPods service.LocalPods // but for those of NodeCIDR, which the Node tells
	level     logrus.Level
	traced    []proxy.Traced
}

// The ways to lead portals to listeners.
const (
	redirectAuto     = "auto"
	redirectNFTables = "nftables"
	redirectIPTables = "iptables"
	redirectNone     = "none"
)

// completeRun reads what the flags of run mean, with the configuration file that
// they name, and tells all that is wrong with them.
func (o *options) completeRun(flags *pflag.FlagSet) error {
	var c checks
	o.fill(flags, &c)
	o.tuning.asked = flags.Changed
	o.validateRun(&c)
	return c.err()
}

// validateRun tells what is wrong with the flags of run.
func (o *options) validateRun(c *checks) {
	c.check("--proxy-mode", checkMode(o.mode))
	o.tuning.check(c)
	c.check("--show-hidden-metrics-for-version", checkHiddenVersion(o.showHidden))
	o.checkEtcd(c)
	o.complete(c)
	o.api.check(c)
	if o.writeConfigTo == "" && !o.initOnly {
		others := len(o.files)+len(o.etcd.Servers) > 0
		o.api.connect(c, others)
		if others && !o.api.named() && o.local.mode == detectNodeCIDR {
			c.check("--detect-local-mode", errors.New("NodeCIDR is by the podCIDRs of this machine's Node, of which only an API server tells: give --kubeconfig FILE as well, or take ClusterCIDR with the range of this machine's pods in --cluster-cidr"))
		}
	}
	if o.startupGrace <= 0 {
		c.check("--startup-grace", fmt.Errorf("must be above 0, got %v", o.startupGrace))
	}
	if o.drainTimeout < 0 {
		c.check("--drain-timeout", fmt.Errorf("must not be below 0, got %v", o.drainTimeout))
	}
	if o.tcpKeepalive < 0 {
		c.check("--tcp-keepalive", fmt.Errorf("must not be below 0, got %v", o.tcpKeepalive))
	}
	o.checkTakeover(c)
	c.check("--healthz-bind-address", status.CheckAddress(o.healthzAddress))
	c.check("--metrics-bind-address", status.CheckAddress(o.metricsAddress))
	c.check("--log-level", o.readLevel())
	if o.logFormat != "text" && o.logFormat != "json" {
		c.check("--log-format", fmt.Errorf("must be text or json, got %q", o.logFormat))
	}
	o.checkTrace(c)
	data := o.proxyConfig()
	if data.Ports == (service.PortRange{}) { // what is wrong with it is told already
		data.Ports = service.PortRange{First: 1, Last: 1}
	}
	for _, err := range multierror.Append(nil, data.Validate()).WrappedErrors() {
		flag, what, _ := strings.Cut(err.Error(), " ") // it names its flag itself
		c.add(fmt.Errorf("%s %s", c.named(flag), what))
	}
}

// complete does so for the flags that other commands have too.
func (o *options) complete(c *checks) {
	var err error
	for _, path := range o.files {
		c.check("--file", checkReadable(path))
	}
	o.meant.nodePorts, err = node.ParseSelection(o.nodePortAddrs)
	c.check("--nodeport-addresses", err)
	o.meant.localPods = o.local.complete(c)
	c.check("--redirect", o.checkRedirect())
	o.meant.listen, err = parseBindAddress(o.bindAddress)
	c.check("--bind-address", err)
	o.meant.ports, err = parsePortRange(o.portRange)
	c.check("--proxy-port-range", err)
	o.meant.mark, err = parseMark(o.mark)
	c.check("--mark", err)
	o.checkTransparent(c)
}

// checks gathers what is wrong, so that people need not mend one thing to hear
// of the next.
type checks struct {
	faults *multierror.Error
	fields map[string]string // by flag, what is to be named in its place
}

// check notes what is wrong with a flag's value; nothing, where err is nil.
func (c *checks) check(flag string, err error) {
	for _, e := range multierror.Append(nil, err).WrappedErrors() {
		c.add(fmt.Errorf("%s: %w", c.named(flag), e))
	}
}

// named is where people find what is wrong: a flag, or the field of the
// configuration file that its value is from.
func (c *checks) named(flag string) string { return cmp.Or(c.fields[flag], flag) }

// add notes an error that names its flag itself, where it has one.
func (c *checks) add(err error) { c.faults = multierror.Append(c.faults, err) }

func (c *checks) err() error {
	if c.faults != nil {
		c.faults.ErrorFormat = asLines
	}
	return usage(c.faults.ErrorOrNil())
}

const noSource = `no source of Services: give --file PATH, a YAML or JSON file or directory ("-" is standard input)`

// checkEtcd tells what is wrong with the flags for etcd.
func (o *options) checkEtcd(c *checks) {
	if len(o.etcd.Servers) == 0 {
		for _, flag := range o.given {
			switch {
			case flag == "etcd-servers":
				c.check("--"+flag, errors.New("names no server: write one or more, as in https://10.0.0.1:2379"))
			case strings.HasPrefix(flag, "etcd-"):
				c.check("--"+flag, errors.New("needs --etcd-servers"))
			}
		}
		return
	}
	for _, err := range multierror.Append(nil, o.etcd.Validate()).WrappedErrors() {
		c.add(err) // names its flag itself
	}
}

// checkReadable says why a path cannot be read. What is in it is for the file
// source to judge.
func checkReadable(path string) error {
	if path == file.Stdin {
		return nil
	}
	if path == "" {
		return errors.New("the path is empty")
	}
	info, err := os.Stat(path)
	if err == nil && (info.IsDir() || info.Mode().IsRegular()) { // opening a pipe would wait for a writer
		var f *os.File
		if f, err = os.Open(path); err == nil {
			err = f.Close()
		}
	}
	var at *fs.PathError
	if errors.As(err, &at) {
		return fmt.Errorf("%s: %w", path, at.Err)
	}
	return err // check names the flag
}

func (o *options) checkRedirect() error {
	switch o.redirect {
	case redirectAuto, redirectNFTables, redirectIPTables, redirectNone:
		return nil
	}
	return fmt.Errorf("must be auto, nftables, iptables or none, got %q", o.redirect)
}

// proxyConfig is what the flags say to the data path. Where it listens and who
// leads there is for the redirection to add.
func (o *options) proxyConfig() proxy.Config {
	c := proxy.Config{
		Ports:              o.meant.ports,
		DialTimeout:        o.dialTimeout,
		HalfCloseTimeout:   o.tcpHalfCloseTimeout,
		IdleTimeout:        o.tcpIdleTimeout,
		KeepAlive:          o.tcpKeepalive,
		MaxConnections:     o.maxConnections,
		MaxPerClient:       o.maxPerClient,
		UDPTimeout:         o.udpTimeout,
		MaxUDPFlows:        o.maxUDPFlows,
		SyncPeriod:         o.syncPeriod,
		MinSyncPeriod:      o.minSyncPeriod,
		MetricsPerEndpoint: o.metricsPerEndpoint,
		Trace:              o.meant.traced,
	}
	if c.KeepAlive == 0 {
		c.KeepAlive = -1 // none
	}
	return c
}

// parseBindAddress reads a listening address. Both unspecified addresses are
// kube-proxy's default and stand for the addresses of the proxy's own.
func parseBindAddress(s string) (map[service.Family]netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%q is not an IP address", s)
	case a.IsUnspecified():
		return nil, nil
	case a.IsLoopback(), a.IsMulticast(), a.Zone() != "":
		return nil, fmt.Errorf("rules cannot lead clients to %s: give an address of this node that is no loopback address, or leave it out", s)
	}
	a = a.Unmap()
	return map[service.Family]netip.Addr{service.FamilyOf(a): a}, nil
}

func parsePortRange(s string) (service.PortRange, error) {
	from, to, ok := strings.Cut(s, "-")
	first, err1 := strconv.ParseUint(from, 10, 16)
	last, err2 := strconv.ParseUint(to, 10, 16)
	if !ok || err1 != nil || err2 != nil || first == 0 || first > last {
		return service.PortRange{}, fmt.Errorf("must be FIRST-LAST within 1-65535 like 10000-29999, got %q", s)
	}
	return service.PortRange{First: uint16(first), Last: uint16(last)}, nil
}

func parseMark(s string) (uint32, error) {
	mark, err := strconv.ParseUint(s, 0, 32)
	if err != nil || mark == 0 {
		return 0, fmt.Errorf("must be a number from 1 to 0xffffffff, got %q", s)
	}
	return uint32(mark), nil
}

// readLevel reads --log-level and -v, of which the more talkative counts:
// klog's levels are quiet up to 3.
func (o *options) readLevel() error {
	var err error
	if o.meant.level, err = logrus.ParseLevel(o.logLevel); err != nil {
		return fmt.Errorf("must be error, warning, info or debug, got %q", o.logLevel)
	}
	if o.verbosity > 3 {
		o.meant.level = max(o.meant.level, logrus.DebugLevel)
	}
	return nil
}

// asLines is a multierror without a heading.
func asLines(errs []error) string {
	lines := make([]string, len(errs))
	for i, err := range errs {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}
