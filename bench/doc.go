//go:build linux

// Command bench measures userspace-proxy side by side with HAProxy, nginx and
// the kernel's own address translation, and writes docs/benchmarks.md.
//
//	make bench                                    # everything, some ten minutes, root
//	bin/bench -only ping-pong,connect -rounds 1   # some rows, a first look
//
// It lays out three hosts (package bed), starts all proxies on the one in the
// middle and a server behind it, and then, in rounds, has a client (package
// load) work through each of them in turn. What it measures goes to package
// report. Nothing is left on the machine.
//
// The load and the server are this same program, started on the other hosts
// (child.go).
package main
