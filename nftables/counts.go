package nftables

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// What `nft -j list` prints, as far as it is read here.
type (
	listing struct {
		Objects []listed `json:"nftables"`
	}
	listed struct {
		Map   *listedMap   `json:"map"`
		Rule  *listedRule  `json:"rule"`
		Chain *listedChain `json:"chain"`
	}
	listedMap struct {
		Name     string               `json:"name"`
		Elements [][2]json.RawMessage `json:"elem"` // left and right side
	}
	listedElement struct {
		Elem struct {
			Val struct {
				Concat []any `json:"concat"`
			} `json:"val"`
			Counter listedCounter `json:"counter"`
		} `json:"elem"`
	}
	listedRule struct {
		Chain string `json:"chain"`
		Expr  []struct {
			Counter *listedCounter `json:"counter"`
		} `json:"expr"`
	}
	listedChain struct {
		Family string `json:"family"`
		Table  string `json:"table"`
		Name   string `json:"name"`
		Hook   string `json:"hook"`
		Policy string `json:"policy"`
	}
	listedCounter struct {
		Packets uint64 `json:"packets"`
	}
)

// readCounts adds to counts what a listing of one of our tables has.
func readCounts(list []byte, counts *Counts) error {
	var l listing
	if err := json.Unmarshal(list, &l); err != nil {
		return fmt.Errorf("reading what nft listed: %w", err)
	}
	for _, o := range l.Objects {
		if o.Map != nil {
			if err := o.Map.count(counts); err != nil {
				return fmt.Errorf("reading the map %s that nft listed: %w", o.Map.Name, err)
			}
		}
		if o.Rule == nil {
			continue
		}
		for _, e := range o.Rule.Expr {
			switch {
			case e.Counter == nil:
			case o.Rule.Chain == guardChain:
				counts.Guarded += e.Counter.Packets
			case o.Rule.Chain == sourcesChain:
				counts.Barred += e.Counter.Packets
			}
		}
	}
	return nil
}

func (m *listedMap) count(counts *Counts) error {
	portals := counts.Portals
	switch m.Name {
	case rangedMap: // the chain that it leads to counts
		return nil
	case outside(portalsMap), outside(deniedMap):
		portals = counts.Outside
	}
	for _, sides := range m.Elements {
		var e listedElement
		if err := json.Unmarshal(sides[0], &e); err != nil {
			return err
		}
		p, err := portalOf(e.Elem.Val.Concat)
		if err != nil {
			return err
		}
		portals[p] += e.Elem.Counter.Packets
	}
	return nil
}

// portalOf reads an element's left side: ["10.96.0.10", "tcp", 80].
func portalOf(concat []any) (Portal, error) {
	if len(concat) == 3 {
		addr, okAddr := concat[0].(string)
		proto, okProto := concat[1].(string)
		port, okPort := concat[2].(float64)
		a, err := netip.ParseAddr(addr)
		if okAddr && okProto && okPort && err == nil && port >= 0 && port <= 65535 {
			return Portal{netip.AddrPortFrom(a, uint16(port)), service.Protocol(strings.ToUpper(proto))}, nil
		}
	}
	return Portal{}, fmt.Errorf("%v is not an address, a protocol and a port", concat)
}
