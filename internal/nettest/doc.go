// Package nettest lays out a small network in Linux network namespaces, for
// tests that need real hosts, real packets and real rules:
//
//	client ──10.10.1.0/24── node ──10.10.2.0/24── back (addresses .2 to .9)
//	                          │
//	                         pod 10.10.3.2, behind an interface without an
//	                             IPv4 address, as Calico lays it
//
// and the same in IPv6 (fd10:1::/64, fd10:2::/64, fd10:3::2). The node forwards,
// and every host sends what it does not know to it, so that Service addresses
// (say 10.96.0.10 and fd96::10) arrive there; the node's own default route
// leads to back.
//
// The namespaces have no names: a file descriptor of the test process holds
// each, so that nothing stays behind however the process ends, and tests and
// packages run beside each other without knowing of each other.
//
// A namespace belongs to a thread, not to a goroutine. Host.Do runs a function
// on a thread inside one; what its goroutines do happens elsewhere. A test of
// code that opens sockets in goroutines of its own must therefore put the whole
// process into a namespace: see Isolate and NewHere.
//
// The package is for tests only. It needs root; where something is missing the
// test fails and says what, it is never skipped.
package nettest
