// Package proxy serves service ports: it opens a listener for each, has rules
// lead the portals to it, and carries TCP connections and UDP flows to the
// endpoints that the balancer picks.
//
// A Proxier is told the whole desired state and makes it so, in this order:
// open what is new, redirect in one transaction, close what is left over. A
// connection then goes
//
//	on Linux:  acceptor (accept_linux.go) -> session: dial (dial_linux.go),
//	           carry (carry_linux.go), end (session_linux.go), all in one loop
//	elsewhere: tcpListener (tcp_portable.go) -> dialer (dial_portable.go)
//	           -> relay (relay_portable.go), two goroutines
//
// and a datagram goes through udpServer (udp.go). Sockets that must refuse
// are held: bound, so that nobody else takes the port, and not listening. The
// build tag portable chooses the second way on Linux too, for tests.
//
// The package owns sockets and the goroutines that use them. It knows neither
// Kubernetes nor how rules are written: Rules is an interface, and where it is
// nil (--redirect=none) listeners stand on the portals themselves.
package proxy
