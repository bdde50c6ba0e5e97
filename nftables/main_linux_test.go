//go:build linux && !portable

package nftables

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
)

// TestMain moves the whole test process into a namespace of its own, so that
// no test, and no fuzzing worker, can touch the machine's rules.
func TestMain(m *testing.M) {
	nettest.Isolate()
	goleak.VerifyTestMain(m)
}
