package nettest

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// The names of the node's interfaces. Every other host has its one as "eth0".
const (
	NodeToClient = "eth-client"
	NodeToBack   = "eth-back"
	NodeToPod    = "cali-pod" // has no IPv4 address
)

// Packet is the first one of a connection or flow.
type Packet struct {
	From  string // "client", "pod", "node"
	Proto service.Protocol
	Dst   netip.AddrPort
	Mark  uint32
}

// String is the packet as a failure tells of it.
func (p Packet) String() string {
	s := fmt.Sprintf("%s from %s to %s", p.Proto, p.From, p.Dst)
	if p.Mark != 0 {
		s += fmt.Sprintf(" marked %#x", p.Mark)
	}
	return s
}

// Sent is a packet of a table.
func Sent(from, portal string, mark ...uint32) Packet {
	proto, addr, _ := strings.Cut(portal, " ")
	p := Packet{From: from, Proto: service.Protocol(proto), Dst: netip.MustParseAddrPort(addr)}
	if len(mark) > 0 {
		p.Mark = mark[0]
	}
	return p
}

// What may become of a packet; beside them "listener ADDR:PORT".
const (
	Passes  = "passes" // goes where it was sent to
	Refused = "refused"
	Dropped = "dropped"
)
