// Package e2e runs the built binary against real clients and real servers, in
// the network that internal/nettest lays out: a client, a node where the proxy
// runs, a pod on it, and a host with backends.
//
// It holds tests only, and is a module of its own so that what it needs does
// not weigh on those who import or build the proxy.
package e2e
