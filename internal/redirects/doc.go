// Package redirects settles which redirects rules are made of: those that can be
// expressed and guarded, and one for each portal. It is what nftables and
// iptables have in common, pure and without a word of either.
package redirects
