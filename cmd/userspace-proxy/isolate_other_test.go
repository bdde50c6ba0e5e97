//go:build !linux

package main

// isolate does nothing: there are no network namespaces here.
func isolate() {}
