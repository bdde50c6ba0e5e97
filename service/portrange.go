package service

import "fmt"

// PortRange is a range of port numbers, both ends included. Zero has none.
type PortRange struct{ First, Last uint16 }

// Contains says whether a port is in the range.
func (r PortRange) Contains(port uint16) bool {
	return port != 0 && r.First <= port && port <= r.Last
}

// Size is the number of ports in the range.
func (r PortRange) Size() int { return int(r.Last) - int(r.First) + 1 }

// String is the range as people and nft write it: "10000-29999".
func (r PortRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }
