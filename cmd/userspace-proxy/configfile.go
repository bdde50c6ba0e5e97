package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/userspace-proxy/userspace-proxy/internal/kubeproxy"
)

// configFile is kube-proxy's configuration file: where it is, and what was in it
// when it was read.
type configFile struct {
	path     string
	text     []byte
	warnings []string // what people should know of it, for the log
}

// setting is a field of kube-proxy's configuration file and the flag that says
// the same. An empty value leaves it to the default.
type setting struct{ field, flag, value string }

// settings are the fields that mean something here. configuration is the way
// back.
func settings(c *kubeproxy.Configuration) []setting {
	client := c.ClientConnection
	return []setting{
		{"clientConnection.kubeconfig", "kubeconfig", client.Kubeconfig},
		{"clientConnection.contentType", "kube-api-content-type", client.ContentType},
		{"clientConnection.qps", "kube-api-qps", unlessZero(client.QPS)},
		{"clientConnection.burst", "kube-api-burst", unlessZero(client.Burst)},
		{"logging.format", "log-format", c.Logging.Format},
		{"logging.verbosity", "v", unlessZero(c.Logging.Verbosity)},
		{"hostnameOverride", "hostname-override", c.HostnameOverride},
		{"bindAddress", "bind-address", c.BindAddress},
		{"healthzBindAddress", "healthz-bind-address", c.HealthzBindAddress},
		{"metricsBindAddress", "metrics-bind-address", c.MetricsBindAddress},
		{"bindAddressHardFail", "bind-address-hard-fail", unlessZero(c.BindAddressHardFail)},
		{"oomScoreAdj", "oom-score-adj", unlessNil(c.OOMScoreAdj)},
		{"conntrack.maxPerCore", "conntrack-max-per-core", unlessNil(c.Conntrack.MaxPerCore)},
		{"conntrack.min", "conntrack-min", unlessNil(c.Conntrack.Min)},
		{"conntrack.tcpEstablishedTimeout", "conntrack-tcp-timeout-established", durationUnlessNil(c.Conntrack.TCPEstablishedTimeout)},
		{"conntrack.tcpCloseWaitTimeout", "conntrack-tcp-timeout-close-wait", durationUnlessNil(c.Conntrack.TCPCloseWaitTimeout)},
		{"conntrack.tcpBeLiberal", "conntrack-tcp-be-liberal", unlessZero(c.Conntrack.TCPBeLiberal)},
		{"conntrack.udpTimeout", "conntrack-udp-timeout", unlessZero(c.Conntrack.UDPTimeout.Duration)},
		{"conntrack.udpStreamTimeout", "conntrack-udp-timeout-stream", unlessZero(c.Conntrack.UDPStreamTimeout.Duration)},
		{"enableProfiling", "profiling", unlessZero(c.EnableProfiling)},
		{"showHiddenMetricsForVersion", "show-hidden-metrics-for-version", c.ShowHiddenMetricsForVersion},
		{"mode", "proxy-mode", string(c.Mode)},
		{"iptables.syncPeriod", "sync-period", unlessZero(c.IPTables.SyncPeriod.Duration)},
		{"iptables.minSyncPeriod", "min-sync-period", unlessZero(c.IPTables.MinSyncPeriod.Duration)},
		{"nodePortAddresses", "nodeport-addresses", strings.Join(c.NodePortAddresses, ",")},
		{"clusterCIDR", "cluster-cidr", c.ClusterCIDR},
		{"detectLocalMode", "detect-local-mode", string(c.DetectLocalMode)},
		{"detectLocal.bridgeInterface", "pod-bridge-interface", c.DetectLocal.BridgeInterface},
		{"detectLocal.interfaceNamePrefix", "pod-interface-name-prefix", c.DetectLocal.InterfaceNamePrefix},
		{"configSyncPeriod", "config-sync-period", unlessZero(c.ConfigSyncPeriod.Duration)},
		{"portRange", "proxy-port-range", portRangeOf(c.PortRange)},
		{"udpIdleTimeout", "udp-timeout", unlessZero(c.UDPIdleTimeout.Duration)},
	}
}

// unlessZero is a value as flags take it, and nothing where it is left to the
// default.
func unlessZero[T comparable](v T) string {
	if v == *new(T) {
		return ""
	}
	return fmt.Sprint(v)
}

// unlessNil is a value as flags take it, where there is one.
func unlessNil[T any](v *T) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(*v)
}

func durationUnlessNil(d *metav1.Duration) string {
	if d == nil {
		return ""
	}
	return d.Duration.String()
}

// portRangeOf is a range of ports in the forms that kube-proxy took, of which
// "0" left the choice to the kernel.
func portRangeOf(s string) string {
	r, err := utilnet.ParsePortRange(s)
	if err != nil {
		return s // the flag says what is wrong with it
	}
	if r.Size == 0 || r.Base == 0 {
		return ""
	}
	return fmt.Sprintf("%d-%d", r.Base, r.Base+r.Size-1)
}

// fill gives the flags that were not given the values of kube-proxy's
// configuration file, and those that kube-proxy has under other names theirs.
// What is wrong is noted, and so is which field a flag's value is from.
func (o *options) fill(flags *pflag.FlagSet, c *checks) {
	for _, s := range o.renamed.settings() {
		o.set(flags, s, c)
	}
	if o.config.path != "" {
		read, err := o.config.read()
		if err != nil {
			c.check("--config", err)
		} else {
			for _, s := range settings(read) {
				s.field = o.config.path + ": " + s.field
				o.set(flags, s, c)
			}
		}
	}
	o.fillAddresses(flags)
}

// set gives a flag a value, unless it has one already.
func (o *options) set(flags *pflag.FlagSet, s setting, c *checks) {
	if s.value == "" || flags.Changed(s.flag) {
		return
	}
	if c.fields == nil {
		c.fields = map[string]string{}
	}
	c.fields["--"+s.flag] = s.field
	if err := flags.Set(s.flag, strings.TrimSpace(s.value)); err != nil {
		c.check("--"+s.flag, err)
	}
}

// read reads the file.
func (f *configFile) read() (*kubeproxy.Configuration, error) {
	text, err := os.ReadFile(f.path)
	if err != nil {
		var at *fs.PathError
		if errors.As(err, &at) {
			err = at.Err
		}
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	read, lenient, err := kubeproxy.Decode(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	f.text = text
	if len(lenient) > 0 {
		f.warn("is read leniently, without what is wrong with it: %s", strings.Join(lenient, "; "))
	}
	if ignored := read.Ignored(); len(ignored) > 0 {
		f.warn("these fields concern proxies in the kernel and mean nothing here: %s", strings.Join(ignored, ", "))
	}
	if t := read.UDPIdleTimeout.Duration; t > 0 && t < shortFlow {
		f.warn("udpIdleTimeout: servers whose answers take longer than %v, DNS among them, are not heard; leave it out for 30s", t)
	}
	return read, nil
}

// shortFlow is what the idle time of flows had better not be below. kube-proxy's
// own was 250 ms, and kubeadm wrote it into its files.
const shortFlow = 5 * time.Second

func (f *configFile) warn(format string, args ...any) {
	f.warnings = append(f.warnings, "--config: "+f.path+": "+fmt.Sprintf(format, args...))
}

// configPoll is how often the configuration file is looked at. It is looked at
// rather than watched because nothing is in a hurry, and a ConfigMap's file is
// replaced by way of links.
const configPoll = 2 * time.Second

// watch returns when the file's content is another one than was read, twice the
// same in a row, so that none is taken that is being written; or when ctx ends.
func (f *configFile) watch(ctx context.Context, log logrus.FieldLogger, stopping func()) error {
	if f.path == "" {
		<-ctx.Done()
		return nil
	}
	look := time.NewTicker(configPoll)
	defer look.Stop()
	last := f.text
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
		now, err := os.ReadFile(f.path)
		if err != nil {
			continue // while it is replaced there is none
		}
		if !bytes.Equal(now, f.text) && bytes.Equal(now, last) {
			stopping()
			log.Warnf("--config: %s has changed: ending, to be started again with what it says now", f.path)
			return nil
		}
		last = now
	}
}

// fillAddresses completes addresses of servers that are given without a port,
// and where the listening address is an IPv6 one, as on IPv6 nodes, has the
// metrics stand on IPv6 by default, as kube-proxy does; health is in both families.
func (o *options) fillAddresses(flags *pflag.FlagSet) {
	const healthPort, metricsPort = "10256", "10249"
	if a, err := netip.ParseAddr(o.bindAddress); err == nil && a.Is6() && !a.Is4In6() {
		if !flags.Changed("metrics-bind-address") && o.metricsAddress != "" {
			o.metricsAddress = "[::1]:" + metricsPort
		}
	}
	o.healthzAddress = withPort(o.healthzAddress, healthPort)
	o.metricsAddress = withPort(o.metricsAddress, metricsPort)
}

// withPort is an address with a port.
func withPort(address, port string) string {
	if a, err := netip.ParseAddr(address); err == nil {
		return net.JoinHostPort(a.String(), port)
	}
	return address
}
