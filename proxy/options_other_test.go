//go:build !linux

package proxy

import (
	"context"
	"syscall"
)

// leavePortToConnect is a matter of Linux.
func leavePortToConnect(context.Context, string, string, syscall.RawConn) error { return nil }
