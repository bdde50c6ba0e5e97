package kubeproxy

import (
	"fmt"
	"slices"
)

// Ignored names the fields that are set and have no meaning for a proxy in user
// space, in alphabetical order.
func (c *Configuration) Ignored() []string {
	var names []string
	for field, set := range map[string]bool{
		"clientConnection.acceptContentTypes": c.ClientConnection.AcceptContentTypes != "",
		"logging.vmodule":                     len(c.Logging.VModule) > 0,
		"iptables.masqueradeBit":              c.IPTables.MasqueradeBit != nil,
		"iptables.masqueradeAll":              c.IPTables.MasqueradeAll,
		"iptables.localhostNodePorts":         c.IPTables.LocalhostNodePorts != nil,
		"ipvs.syncPeriod":                     c.IPVS.SyncPeriod.Duration != 0,
		"ipvs.minSyncPeriod":                  c.IPVS.MinSyncPeriod.Duration != 0,
		"ipvs.scheduler":                      c.IPVS.Scheduler != "",
		"ipvs.excludeCIDRs":                   len(c.IPVS.ExcludeCIDRs) > 0,
		"ipvs.strictARP":                      c.IPVS.StrictARP,
		"ipvs.tcpTimeout":                     c.IPVS.TCPTimeout.Duration != 0,
		"ipvs.tcpFinTimeout":                  c.IPVS.TCPFinTimeout.Duration != 0,
		"ipvs.udpTimeout":                     c.IPVS.UDPTimeout.Duration != 0,
		"nftables.masqueradeBit":              c.NFTables.MasqueradeBit != nil,
		"nftables.masqueradeAll":              c.NFTables.MasqueradeAll,
		"nftables.syncPeriod":                 c.NFTables.SyncPeriod.Duration != 0,
		"nftables.minSyncPeriod":              c.NFTables.MinSyncPeriod.Duration != 0,
		"winkernel.networkName":               c.Winkernel.NetworkName != "",
		"winkernel.sourceVip":                 c.Winkernel.SourceVip != "",
		"winkernel.enableDSR":                 c.Winkernel.EnableDSR,
		"winkernel.rootHnsEndpointName":       c.Winkernel.RootHnsEndpointName != "",
		"winkernel.forwardHealthCheckVip":     c.Winkernel.ForwardHealthCheckVip,
		"windowsRunAsService":                 c.WindowsRunAsService,
	} {
		if set {
			names = append(names, field)
		}
	}
	for gate := range c.FeatureGates {
		names = append(names, fmt.Sprintf("featureGates.%s", gate))
	}
	slices.Sort(names)
	return names
}
