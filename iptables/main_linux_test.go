//go:build linux && !portable

package iptables

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
)

// TestMain moves the whole test process into a namespace of its own, so that
// no test, and no fuzzing worker, can touch the machine's rules. The lock of
// iptables-legacy is a file for all namespaces; the tests have their own.
func TestMain(m *testing.M) {
	nettest.Isolate()
	const lockFile = "XTABLES_LOCKFILE"
	if os.Getenv(lockFile) != "" { // a fuzzing worker has its parent's
		goleak.VerifyTestMain(m)
		return
	}
	dir, err := os.MkdirTemp("", "iptables")
	if err == nil {
		err = os.Setenv(lockFile, filepath.Join(dir, "lock"))
	}
	if err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}
