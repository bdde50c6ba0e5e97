//go:build !linux || portable

package proxy

import "net"

// sendUrgent sends bytes without a mark: the portable relay takes the system's
// defaults, by which an urgent byte is no part of the stream.
func sendUrgent(conn *net.TCPConn, b []byte) { _, _ = conn.Write(b) }
