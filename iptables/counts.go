package iptables

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// count adds to counts what listings of our tables have.
func (c *Counts) count(found map[string]listing) error {
	for chain, rules := range found[natTable].rules {
		if !ours(chain) {
			continue
		}
		for _, r := range rules {
			if r.target() != "DNAT" {
				continue
			}
			p, err := r.portal()
			if err != nil {
				return fmt.Errorf("reading the rule %q: %w", r.spec, err)
			}
			switch {
			case strings.HasPrefix(chain, sourcesBelow):
				c.Barred += r.packets
			case chain == outsideChain, strings.HasPrefix(chain, outsideBelow):
				c.Outside[p] += r.packets
			default:
				c.Portals[p] += r.packets
			}
		}
	}
	for _, r := range found[filterTable].rules[guardChain] {
		if r.target() == "REJECT" {
			c.Guarded += r.packets
		}
	}
	return nil
}

// portal is what one of our rules matches.
func (r listedRule) portal() (Portal, error) {
	prefix, err := netip.ParsePrefix(r.option("-d"))
	if err != nil {
		return Portal{}, err
	}
	port, err := strconv.ParseUint(r.option("--dport"), 10, 16)
	if err != nil {
		return Portal{}, err
	}
	return Portal{netip.AddrPortFrom(prefix.Addr(), uint16(port)), service.Protocol(strings.ToUpper(r.option("-p")))}, nil
}
