package load

import (
	"fmt"
	"net/netip"
	"time"
)

// Mode is a kind of work.
type Mode string

// The kinds of work. In each of them a flow waits for the answer before it goes
// on, so that the load adapts to what it measures.
const (
	PingPong Mode = "ping-pong" // a message and its echo, over and over, on connections that stay
	Connect  Mode = "connect"   // connect, one message and its echo, close
	Bulk     Mode = "bulk"      // as many bytes as go through, one way
	Idle     Mode = "idle"      // connections that are opened, used once, held, and used once more
	UDP      Mode = "udp"       // as PingPong, in datagrams; each flow a socket
	UDPNew   Mode = "udp-new"   // as Connect, in datagrams: a new socket for each
)

// Job is work for Run.
type Job struct {
	Mode     Mode
	Addr     netip.AddrPort // IPv4
	Flows    int            // connections, or UDP flows, at once
	Size     int            // bytes of a message, 8 or more; Bulk and Idle have no use for it
	Duration time.Duration  // of the measured part; Idle has no use for it
}

// Result is what came of a Job.
type Result struct {
	Elapsed  time.Duration // that the measured part took
	Ops      uint64        // answers, each the whole message; Idle: connections that answered again after they had been held
	Bytes    uint64        // Bulk: that arrived
	P50, P99 time.Duration // from the start of an operation to its end
	Errors   uint64        // connections that failed or came to an end
	Lost     uint64        // datagrams without an answer for a second
	Held     uint64        // Idle: connections that were open and had answered
}

// Validate says what is wrong with a Job.
func (j Job) Validate() error {
	switch {
	case !j.Addr.Addr().Is4() || j.Addr.Port() == 0:
		return fmt.Errorf("the address must be IPv4 with a port, got %s", j.Addr)
	case j.Flows < 1:
		return fmt.Errorf("there must be a flow, got %d", j.Flows)
	case j.Mode != Bulk && j.Mode != Idle && j.Size < sequenceSize:
		return fmt.Errorf("a message must have %d bytes or more, got %d", sequenceSize, j.Size)
	}
	switch j.Mode {
	case PingPong, Connect, Bulk, Idle, UDP, UDPNew:
		return nil
	default:
		return fmt.Errorf("unknown mode %q", j.Mode)
	}
}

// sequenceSize is how much of a message is its number, which tells an answer
// from a late answer to an earlier one.
const sequenceSize = 8
