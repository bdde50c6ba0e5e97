// Package transparent is what it takes for a connection to an endpoint to be made
// from the client's own address (docs/adr/0017-transparent.md): whether a dial may
// be (Decider), the right to make one (MayDial), and the policy routing by which
// the endpoint's replies, which are addressed to the client, are delivered to this
// node (Routing).
//
// It owns the routing table Table and the policy rules that lead there, and
// touches no other route, rule or address. Which packets are replies is told by
// nftables and iptables, which mark them.
package transparent
