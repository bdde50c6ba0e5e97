package proxy

import (
	"runtime"
	"testing"

	"go.uber.org/goleak"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
)

// TestMain gives the tests a network of their own, in which they may use every
// address and port and change what the kernel does.
func TestMain(m *testing.M) {
	nettest.Isolate()
	runtime.GOMAXPROCS(GoProcessors(max(2, runtime.GOMAXPROCS(0)))) // several loops
	goleak.VerifyTestMain(m)
}
