package main

import "github.com/userspace-proxy/userspace-proxy/internal/nettest"

// isolate gives the tests a network of their own, where no port is taken.
func isolate() { nettest.Isolate() }
