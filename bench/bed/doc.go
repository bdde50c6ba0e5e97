// Package bed lays out three hosts in Linux network namespaces for benchmarks:
//
//	client 10.10.1.2 ── 10.10.1.1 node 10.10.2.1 ── back 10.10.2.2 to .9
//
// The client and back send what they do not know to the node, which forwards.
//
// Nothing of it stays: the namespaces have no names, a thread of this process
// holds each, and the kernel kills what was started on a host when that thread
// ends, however the process does. It needs root.
//
// internal/nettest has a bed for tests, with more hosts and IPv6.
package bed
