package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kube-proxy/config/v1alpha1"

	"github.com/userspace-proxy/userspace-proxy/internal/kubeproxy"
)

// configuration is what the flags come to, in the form of kube-proxy's
// configuration file, as far as that has fields for it.
func (o *options) configuration() *kubeproxy.Configuration {
	c := kubeproxy.New()
	c.ClientConnection.Kubeconfig = o.api.kubeconfig
	c.ClientConnection.ContentType = o.api.contentType
	c.ClientConnection.QPS = o.api.qps
	c.ClientConnection.Burst = o.api.burst
	c.Logging.Format = o.logFormat
	c.Logging.Verbosity = logsapi.VerbosityLevel(max(0, o.verbosity))
	c.HostnameOverride = o.hostname
	c.BindAddress = o.bindAddress
	c.HealthzBindAddress = o.healthzAddress
	c.MetricsBindAddress = o.metricsAddress
	c.BindAddressHardFail = o.hardFail
	c.OOMScoreAdj = &o.tuning.oomScoreAdj
	c.Conntrack.MaxPerCore = &o.tuning.maxPerCore
	c.Conntrack.Min = &o.tuning.min
	c.Conntrack.TCPEstablishedTimeout = &metav1.Duration{Duration: o.tuning.tcpEstablished}
	c.Conntrack.TCPCloseWaitTimeout = &metav1.Duration{Duration: o.tuning.tcpCloseWait}
	c.Conntrack.TCPBeLiberal = o.tuning.tcpBeLiberal
	c.Conntrack.UDPTimeout.Duration = o.tuning.udp
	c.Conntrack.UDPStreamTimeout.Duration = o.tuning.udpStream
	c.EnableProfiling = o.profiling
	c.ShowHiddenMetricsForVersion = o.showHidden
	c.Mode = v1alpha1.ProxyMode(modeUserspace)
	c.IPTables.SyncPeriod.Duration = o.syncPeriod
	c.IPTables.MinSyncPeriod.Duration = o.minSyncPeriod
	c.NodePortAddresses = o.nodePortAddrs
	c.ClusterCIDR = o.local.clusterCIDR
	c.DetectLocalMode = v1alpha1.LocalMode(o.local.mode)
	c.DetectLocal.BridgeInterface = o.local.bridge
	c.DetectLocal.InterfaceNamePrefix = o.local.interfacePrefix
	c.ConfigSyncPeriod.Duration = o.api.syncPeriod
	c.PortRange = o.portRange
	c.UDPIdleTimeout = metav1.Duration{Duration: o.udpTimeout}
	return c
}

// writeConfig writes the effective configuration.
func (o *options) writeConfig(log logrus.FieldLogger) error {
	text, err := kubeproxy.Encode(o.configuration())
	if err == nil {
		err = os.WriteFile(o.writeConfigTo, text, 0o644) //nolint:gosec // for others to read, it has no secrets
	}
	if err != nil {
		return fmt.Errorf("--write-config-to: %w", err)
	}
	log.Infof("--write-config-to: wrote the effective configuration to %s", o.writeConfigTo)
	return nil
}

// modeUserspace is what --proxy-mode may be, and what /proxyMode says.
const modeUserspace = "userspace"

// checkMode says what to do about a mode of kube-proxy's that is none of ours.
func checkMode(mode string) error {
	switch strings.ToLower(mode) {
	case "", modeUserspace:
		return nil
	case "iptables", "nftables":
		return fmt.Errorf("%q is a proxy in the kernel, and this one is in user space: leave it out or say %s; to have clients led here by %s give --redirect=%s",
			mode, modeUserspace, strings.ToLower(mode), strings.ToLower(mode))
	case "ipvs", "kernelspace":
		return fmt.Errorf("%q is a proxy in the kernel, and this one is in user space: leave it out or say %s", mode, modeUserspace)
	}
	return fmt.Errorf("must be %s or empty, got %q", modeUserspace, mode)
}
