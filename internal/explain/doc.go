// Package explain tells what becomes of one packet: which portal it is for,
// which rule leads it to which listener, and which endpoint it would come to
// and why; or that it would be refused, dropped, or is none of the proxy's
// business, and what would change that.
//
// It is pure: what there is to know comes as a World, from a running proxy or
// from what a file says, and nothing is sent. That what it says comes true is
// tested with real packets, in cmd/userspace-proxy.
package explain
