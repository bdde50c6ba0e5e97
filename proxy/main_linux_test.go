package proxy

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
)

// TestMain gives the tests a network of their own, in which they may use every
// address and port and change what the kernel does.
func TestMain(m *testing.M) {
	nettest.Isolate()
	goleak.VerifyTestMain(m)
}
