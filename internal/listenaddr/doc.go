// Package listenaddr keeps the proxy's own listening addresses on lo: the ones
// that rules lead portals to.
//
// They are addresses that nobody else has, so that any port on them is free
// and no listener is reached by chance. They are made so that they serve as a
// destination and for nothing else: the IPv4 one has scope host, the IPv6 one
// a preferred lifetime of 0, else the kernel would take them as the source of
// the node's own connections, to pods behind interfaces without an address of
// their own for one, and no answer would find the way back
// (docs/adr/0006-dnat-to-own-address.md).
//
// The package owns exactly these addresses. It changes no interface and no
// other address, and nothing ends by itself: they stay until Remove, because
// rules and connections outlive a process too.
package listenaddr
