package conntrack

import (
	"encoding/binary"
	"iter"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// entry is what matters here of an entry.
type entry struct {
	udp   bool
	from  netip.Addr
	to    netip.AddrPort // as the sender means it
	ledTo netip.AddrPort // where replies come from
}

// readEntry reads what the kernel tells of an entry
// (linux/netfilter/nfnetlink_conntrack.h). What it cannot read is no UDP entry.
func readEntry(message []byte) (e entry) {
	if len(message) < nl.SizeofNfgenmsg {
		return e
	}
	for kind, value := range attributes(message[nl.SizeofNfgenmsg:]) {
		switch kind {
		case nl.CTA_TUPLE_ORIG:
			t := readTuple(value)
			e.udp = t.protocol == unix.IPPROTO_UDP && t.dst.Addr().IsValid()
			e.from, e.to = t.src.Addr(), t.dst
		case nl.CTA_TUPLE_REPLY:
			e.ledTo = readTuple(value).src
		}
	}
	e.udp = e.udp && e.ledTo.Addr().IsValid()
	return e
}

// nameOf is what the kernel finds an entry by again: where replies come from
// and go to, and its id. The id alone, or with the other direction, would not
// do: it is made of that and of a place in memory, which is soon used again.
func nameOf(message []byte) (name []byte) {
	for kind, attribute := range rawAttributes(message[nl.SizeofNfgenmsg:]) {
		switch kind {
		case nl.CTA_TUPLE_REPLY, nl.CTA_ZONE, nl.CTA_ID:
			name = append(name, attribute...)
		}
	}
	return name
}

// tuple is one direction of an entry.
type tuple struct {
	protocol uint8
	src, dst netip.AddrPort
}

func readTuple(b []byte) (t tuple) {
	var src, dst netip.Addr
	var srcPort, dstPort uint16
	for kind, value := range attributes(b) {
		switch kind {
		case nl.CTA_TUPLE_IP:
			for kind, value := range attributes(value) {
				a, _ := netip.AddrFromSlice(value) // the zero Addr where it is none
				switch kind {
				case nl.CTA_IP_V4_SRC, nl.CTA_IP_V6_SRC:
					src = a
				case nl.CTA_IP_V4_DST, nl.CTA_IP_V6_DST:
					dst = a
				}
			}
		case nl.CTA_TUPLE_PROTO:
			for kind, value := range attributes(value) {
				switch {
				case kind == nl.CTA_PROTO_NUM && len(value) == 1:
					t.protocol = value[0]
				case kind == nl.CTA_PROTO_SRC_PORT && len(value) == 2:
					srcPort = binary.BigEndian.Uint16(value)
				case kind == nl.CTA_PROTO_DST_PORT && len(value) == 2:
					dstPort = binary.BigEndian.Uint16(value)
				}
			}
		}
	}
	t.src, t.dst = netip.AddrPortFrom(src, srcPort), netip.AddrPortFrom(dst, dstPort)
	return t
}

// attributes is an iterator over netlink attributes: kinds without flags, and
// values that lie in b. It ends where b is cut short.
func attributes(b []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		for kind, attribute := range rawAttributes(b) {
			size := binary.NativeEndian.Uint16(attribute)
			if !yield(kind, attribute[unix.SizeofNlAttr:size]) {
				return
			}
		}
	}
}

// rawAttributes is attributes with their heads, and with what fills them up to
// where the next may begin.
func rawAttributes(b []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		for len(b) >= unix.SizeofNlAttr {
			size := int(binary.NativeEndian.Uint16(b))
			kind := int(binary.NativeEndian.Uint16(b[2:]) & nl.NLA_TYPE_MASK)
			if size < unix.SizeofNlAttr || size > len(b) {
				return
			}
			padded := min((size+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1), len(b))
			if !yield(kind, b[:padded]) {
				return
			}
			b = b[padded:]
		}
	}
}
