// Package node finds out what the proxy must know of the machine that it runs
// on: its name, its addresses, which of them is its own in each family, and on
// which of them node ports are served.
//
// It reads and changes nothing, and sends nothing. What it makes of what it
// has read is pure.
package node
