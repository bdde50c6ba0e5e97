package transparent

import (
	"errors"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// Table is the number of the routing table that delivers everything to this node.
// Nobody else may use it.
const Table = 30576

// Priority is that of the policy rules that lead there: after the kernel's table
// "local", before what network plugins have.
const Priority = 77

// Errors of this package.
var (
	// ErrUnsupported says that this is not Linux.
	ErrUnsupported = errors.New("only Linux can dial from a client's address")
	// ErrNoRight says that the kernel lets this process do nothing of the kind.
	ErrNoRight = errors.New("no right to dial from clients' addresses: needs root or CAP_NET_ADMIN, or leave --transparent out")
	// ErrDamaged says that a rule or a route is gone or another.
	ErrDamaged = errors.New("somebody has changed it")
)

// Routing is the policy routing by which packets with the mark Reply, and without
// the mark Own, are delivered to this node whatever their destination. What the
// proxy sends from a client's address has both.
type Routing struct {
	Reply, Own uint32
	Families   []service.Family
}
