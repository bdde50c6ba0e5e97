package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNotify: systemd hears when everything is served, and when it ends.
func TestNotify(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]string{"a path": filepath.Join(t.TempDir(), "notify"), "an abstract name": "@userspace-proxy-test-notify"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			supervisor, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
			require.NoError(t, err)
			defer supervisor.Close()
			require.NoError(t, supervisor.SetDeadline(time.Now().Add(patience)))
			heard := func() string {
				buf := make([]byte, 4096)
				n, err := supervisor.Read(buf)
				require.NoError(t, err)
				return string(buf[:n])
			}
			self, err := os.Executable()
			require.NoError(t, err)
			cmd := exec.Command(self, "--file=-", "--redirect=none", "--healthz-bind-address=", "--metrics-bind-address=")
			cmd.Env = append(programEnv(t), "NOTIFY_SOCKET="+address)
			cmd.Stdin = strings.NewReader("apiVersion: v1\nkind: List\nitems: []\n")
			require.NoError(t, cmd.Start())
			assert.Equal(t, "READY=1\nSTATUS=serving 0 ports of 0 services at 0 portals without rules", heard())
			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
			assert.Equal(t, "STOPPING=1", heard())
			require.NoError(t, cmd.Wait())
		})
	}
}
