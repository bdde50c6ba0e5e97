package nftables

import (
	"fmt"
	"strings"
	"time"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// bridgesTable is the name of the table for bridges.
const bridgesTable = TableName + "-bridges"

// bridgesTrial is the name of one that is there for a moment only.
const bridgesTrial = bridgesTable + "-trial"

// BridgesConfig says which packets of the proxy's are meant.
type BridgesConfig struct {
	// Marks are the bits that the proxy's packets from clients' addresses carry, all
	// of them.
	Marks uint32

	// Idle is how long a connection may be without a packet, keepalive probes
	// included. Its replies go past the proxy afterwards, until it sends again.
	Idle time.Duration
}

// mostBridged bounds how many connections are known at once: some 30 MB.
const mostBridged = 1 << 18

// RenderBridges is the nft script that makes the table for bridges anew.
//
// Where client and endpoint are ports of one bridge of this node, the endpoint
// sends its replies, which are addressed to the client, to the client's own
// hardware address: they pass the bridge, and never come up into the node's IP
// stack, where the proxy's socket is. So what the proxy sends into a bridge from a
// client's address is noted there, with the hardware address that it sends from,
// and a frame that comes back the other way gets this as its destination.
//
// Nothing here names a bridge or a port of one: they come and go.
func RenderBridges(c BridgesConfig) string { return renderBridges(c, bridgesTable) }

func renderBridges(c BridgesConfig, name string) string {
	var s strings.Builder
	table := "bridge " + name
	line := func(format string, args ...any) { fmt.Fprintf(&s, format+"\n", args...) }
	line("add table %s", table)
	line("delete table %s", table)
	line("add table %s", table)
	line("add chain %s output { type filter hook output priority 0 ; policy accept ; }", table)
	line("add chain %s prerouting { type filter hook prerouting priority -300 ; policy accept ; }", table)
	for _, f := range service.Families() {
		w := wordsOf(f)
		dials, senders := "dials_"+w.nft, "senders_"+w.nft
		idle := fmt.Sprintf("size %d ; flags dynamic,timeout ; timeout %ds ;", mostBridged, int(c.Idle.Seconds()))
		line("add set %s %s { type %s . inet_proto . inet_service . %s . inet_service ; %s }", table, dials, w.addrType, w.addrType, idle)
		line("add map %s %s { type %s : ether_addr ; %s }", table, senders, w.addrType, idle)
		there := fmt.Sprintf("%s . meta l4proto . th dport . %s . th sport", w.daddr, w.saddr)
		back := fmt.Sprintf("%s . meta l4proto . th sport . %s . th dport", w.saddr, w.daddr)
		mine := fmt.Sprintf("ether type %s meta mark & 0x%08x == 0x%08x ", w.nft, c.Marks, c.Marks)
		// One that has ended is forgotten sooner: what comes yet is for TIME_WAIT.
		const ends, soon = "tcp flags & (fin | rst) != 0 ", " timeout 65s "
		line("add rule %s output %supdate @%s { %s } update @%s { %s : ether saddr } comment \"where the proxy has sent from a client's address\"", table, mine, dials, there, senders, w.daddr)
		line("add rule %s output %s%supdate @%s { %s%s}", table, mine, ends, dials, there, soon)
		line("add rule %s prerouting ether type %s %s @%s update @%s { %s } ether daddr set %s map @%s meta pkttype set host comment \"a reply comes to the proxy, not past it\"", table, w.nft, back, dials, dials, back, w.saddr, senders)
		line("add rule %s prerouting ether type %s %s%s @%s update @%s { %s%s}", table, w.nft, ends, back, dials, dials, back, soon)
	}
	return s.String()
}
