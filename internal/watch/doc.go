// Package watch looks after rules that somebody else may change, for nftables
// and iptables alike. It owns when to look; how to look is told it.
package watch
