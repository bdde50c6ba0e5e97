package main

import (
	"bufio"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSignalWhileReading: what waits for standard input, which may be a terminal
// at which nobody types, is ended by the first signal.
func TestSignalWhileReading(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"run", "plan"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			self, err := os.Executable()
			require.NoError(t, err)
			cmd := exec.Command(self, command, "--file=-", "--redirect=none")
			cmd.Env = programEnv(t)
			input, err := cmd.StdinPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			// More than a pipe holds: that it is written says that it is being read.
			_, err = input.Write(make([]byte, 1<<20))
			require.NoError(t, err)
			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
			_ = cmd.Wait() // the test ends here
			assert.Equal(t, syscall.SIGTERM, cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
		})
	}
}

// TestSignalOfAClosedTerminal ends a demo like any other end.
func TestSignalOfAClosedTerminal(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	dir := openDir(t)
	cmd := exec.Command(self, "demo")
	cmd.Env = append(programEnv(t), "TMPDIR="+dir)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	require.NoError(t, cmd.Wait())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}
