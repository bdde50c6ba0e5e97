// Package load makes traffic for benchmarks and answers it: Job.Run is the
// client's side, Server the other.
//
// Both share a machine with the proxy that they measure, so they cost as little
// as they can: loops over epoll instead of a goroutine for each connection, no
// allocation for a message, times in a Histogram of fixed size, and a sink that
// has the kernel throw away what arrives. Neither knows anything of proxies,
// hosts or network namespaces; they use the network of their process.
package load
