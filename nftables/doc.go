// Package nftables leads portals to listeners with nftables.
//
// It owns one table in each address family, "ip userspace-proxy" and
// "ip6 userspace-proxy", and touches nothing else: no other table, no sysctl
// (route_localnet stays as it is), no masquerading, no address and no
// connection tracking entry.
//
// Render is pure: redirects as values in, an nft script out. A Runner applies
// the same script, and afterwards differences to it, each in one transaction
// of the nft command, so that a packet meets the rules of before or those of
// after and never something between.
//
// A table looks like this (IPv4; ruleset.go says why each rule is there):
//
//	map portals           daddr . proto . dport -> listener, counted
//	map loopback_portals  the same for 127.0.0.0/8, which only the node itself may use
//	map denied            daddr . proto . dport -> refuse or drop, counted
//	map loopback_denied
//	map outside_portals   both once more, for what comes from outside this node, and asked before
//	map outside_denied
//	set pods              addresses of pods on this node, whose traffic does not
//	map ranged            portals to which not everyone may come
//	set sources           who may: daddr . proto . dport . saddr, in ranges
//	prerouting, output            destination NAT by the maps
//	deny_prerouting, deny_output  refusals, before any table's destination NAT
//	input                         listeners answer only translated traffic
//	arrived                       counts what came through every firewall
//	replies                       with Config.Replies: marks what is for a transparent socket
//
// Rendering builds everywhere. What changes the kernel is for Linux; elsewhere,
// and with the build tag portable, it returns ErrUnsupported.
package nftables
