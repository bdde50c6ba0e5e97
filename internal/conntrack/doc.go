// Package conntrack forgets UDP entries of the kernel's connection tracking
// that lead astray, and knows how long such entries live.
//
// A packet is translated by the entry of its flow; rules are asked only where
// there is none yet. TCP flows begin and end by themselves, but a UDP entry
// lives for as long as somebody sends: one that was made before there were
// rules, or that leads to a listener which is gone, holds its sender for ever.
//
// The package deletes UDP entries, those that its caller names, and nothing
// else. It makes no entry, changes none and sets no sysctl, and it runs no
// command: it talks netlink to the network namespace of the calling thread.
package conntrack
