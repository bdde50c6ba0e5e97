// Package iptables leads portals to listeners with iptables and ip6tables,
// for nodes whose kernel or tools have no usable nftables.
//
// It owns the chains whose names begin with "USERSPACE-PROXY-", in the tables
// nat, filter and mangle of each address family, and jumps to them. It touches
// nothing else: no other chain or rule, nor their order, no sysctl
// (route_localnet stays as it is), no masquerading, no address and no
// connection tracking entry.
//
// Render is pure: redirects as values in, the input of iptables-restore out. A
// Runner applies the same text, and afterwards the chains that differ, each
// time with one iptables-restore per family; the first time, and whenever the
// kernel's state is not known, all our chains are replaced in one commit, so
// that a packet meets the rules of before or those of after and never an empty
// chain. A Runner also notices when somebody else has changed our rules (Watch).
//
// The rules look like this (tree.go and ruleset.go say why):
//
//	nat     PREROUTING -> PORTALS -> RANGED    who may not come is dropped
//	                      PORTALS -> OUTSIDE   what is for those outside alone
//	                      PORTALS -> EVERYONE  destination NAT
//	nat     OUTPUT     -> OUTPUT -> RANGED, EVERYONE  the same for the node's own traffic
//	                      OUTPUT -> LOOPBACK       127.0.0.0/8, which only the node itself may use
//	filter  INPUT      -> INPUT  -> GUARD          listeners answer only translated traffic,
//	                                               and that passes a firewall's drop
//	                      INPUT  -> SINKS          what is refused and dropped
//	filter  OUTPUT     -> SINKS                    the same for the node's own traffic
//	mangle  PREROUTING -> REPLIES                  with Config.Replies: marks what is for a transparent socket
//
// EVERYONE, LOOPBACK, OUTSIDE and RANGED are trees of chains (P-…, L-…, O-…, R-…) by
// destination: a new
// connection passes some tens of rules among 10,000 Services. Refuse and drop
// are translations too (as is the drop of who may not come, from a chain S-… of a
// portal's source ranges), to two ports of the listening address at which SINKS
// refuses and drops, so that only the table nat depends on the redirects.
//
// Both kinds of the commands are served: those that change nf_tables
// (iptables-nft) and those that change the older tables (iptables-legacy). The
// first writes only the chains that differ; the second reads and writes the
// whole table at any change, some 0.15 s at 10,000 Services.
//
// Rendering builds everywhere. What changes the kernel is for Linux; elsewhere,
// and with the build tag portable, it returns ErrUnsupported.
package iptables
