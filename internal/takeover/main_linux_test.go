package takeover_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
)

func TestMain(m *testing.M) {
	nettest.Isolate() // names are those of a network namespace
	goleak.VerifyTestMain(m)
}
