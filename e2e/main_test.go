package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// binaryVariable names the binary under test. Set it to test one that is built
// already; otherwise TestMain builds it, with the race detector.
const binaryVariable = "USERSPACE_PROXY"

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "userspace-proxy-e2e-")
	if err == nil && os.Getenv(binaryVariable) == "" {
		err = build(filepath.Join(dir, "userspace-proxy"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "building the binary under test:", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
		os.Exit(code)
	}))
}

func build(binary string) error {
	cmd := exec.Command("go", "build", "-race", "-o", binary, "./cmd/userspace-proxy")
	cmd.Dir = ".."
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return err
	}
	// Others than root run it too.
	if err := os.Chmod(filepath.Dir(binary), 0o755); err != nil {
		return err
	}
	return os.Setenv(binaryVariable, binary)
}
