package conntrack

import "errors"

// Table is the connection tracking table of the network namespace in which its
// methods are called. They may be called by several goroutines at once.
type Table struct{}

// ErrUnsupported says that the program was built for a system without
// connection tracking that it knows.
var ErrUnsupported = errors.New("connection tracking entries are for Linux")
