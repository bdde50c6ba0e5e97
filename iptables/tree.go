package iptables

import (
	"fmt"
	"net/netip"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// Among 10,000 Services a new connection must not pass 10,000 rules. iptables
// has no maps, so portals are sorted into a tree of chains, as a trie: each
// level looks at one digit of the packet, and a chain with few portals is not
// divided further. Where a portal stands depends on nothing but itself and how
// many portals begin with the same digits. So a change touches one chain, or,
// when a chain becomes too long or short again, it and its eight below.
//
// The digits are octal: first those of the address, the low ones first, in
// which the addresses of a Service range differ most; then the protocol; then
// those of the port, the high ones first, since iptables matches ranges of
// ports. So node ports, thousands at one address, are divided as well.
const (
	addressDigits = 5 // the low 15 bits; whatever two addresses have in common in them is divided by port
	portDigits    = 4 // the high 12 bits
	protocolLevel = addressDigits
	levels        = addressDigits + 1 + portDigits

	// linear is how many portals a chain lists before it is divided. Eight
	// levels of chains with 16 would be quicker to pass by a few rules, and
	// slower to program: six times as many chains (docs/adr/0007).
	linear = 32
)

// tree sorts entries into chains.
type tree struct {
	prefix string // of the names of chains below the root: "USERSPACE-PROXY-P-"
	rule   func(*entry) string
	chains map[place][]string
}

// grow makes the chain that leads to entries, which agree in the digits so
// far, and those below it.
func (t tree) grow(chain, digits string, entries []*entry) {
	level := len(digits)
	rules := make([]string, 0, min(len(entries), linear))
	if len(entries) <= linear || level == levels {
		for _, e := range entries {
			rules = append(rules, t.rule(e))
		}
		t.chains[place{natTable, chain}] = rules
		return
	}
	var groups [256][]*entry // by digit
	for _, e := range entries {
		d := e.digit(level)
		groups[d] = append(groups[d], e)
	}
	for d := range groups {
		if group := groups[d]; len(group) > 0 {
			below := digits + string(rune(d))
			rules = append(rules, group[0].matchDigit(level)+" -g "+t.prefix+below)
			t.grow(t.prefix+below, below, group)
		}
	}
	t.chains[place{natTable, chain}] = rules
}

// digit is the portal's digit at a level.
func (p Portal) digit(level int) byte {
	switch {
	case level < addressDigits:
		return '0' + byte(p.lowBits()>>(3*level)&7)
	case level == protocolLevel:
		return string(p.Protocol)[0] // T or U
	default:
		return '0' + byte(p.Addr.Port()>>portShift(level)&7)
	}
}

// matchDigit matches packets that have the portal's digit at a level. (Packets
// whose other digits differ were sorted out above.)
func (p Portal) matchDigit(level int) string {
	switch {
	case level < addressDigits:
		mask := uint16(7) << (3 * level)
		return fmt.Sprintf("-d %s/%s", p.withLowBits(p.lowBits()&mask), p.withLowBits(mask))
	case level == protocolLevel:
		return "-p " + p.Protocol.Lower()
	default:
		rest := uint16(1)<<portShift(level) - 1
		ports := service.PortRange{First: p.Addr.Port() &^ rest, Last: p.Addr.Port() | rest}
		return fmt.Sprintf("-p %s -m %s --dport %s", p.Protocol.Lower(), p.Protocol.Lower(), written(ports))
	}
}

// portShift is how many bits of a port are right of the digit at a level.
func portShift(level int) int { return 13 - 3*(level-protocolLevel-1) }

func (p Portal) lowBits() uint16 {
	a := p.Addr.Addr().As16() // ends with the four bytes of an IPv4 address
	return uint16(a[14])<<8 | uint16(a[15])
}

// withLowBits is an address of the portal's family that has only low bits.
func (p Portal) withLowBits(low uint16) netip.Addr {
	if p.family() == service.IPv4 {
		return netip.AddrFrom4([4]byte{2: byte(low >> 8), 3: byte(low)})
	}
	return netip.AddrFrom16([16]byte{14: byte(low >> 8), 15: byte(low)})
}
