// Package demo is what there is to balance where there is no cluster: a
// manifest of Services on loopback addresses and a backend for each of their
// endpoints, in this process. One backend goes and comes back all the time.
//
// The manifest, manifest/*.yaml, is the one truth: which backends there are,
// of what kind and where, is read from it by the same code that reads Services
// for the proxy. The package owns the backends' sockets and a temporary
// directory with the manifest, both until Close. It knows nothing of the
// proxy.
package demo
