package e2e

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
)

// process is a program that runs on a host.
type process struct {
	host   *nettest.Host
	cmd    *exec.Cmd
	output *nettest.Output
	ended  chan struct{} // closed when the process has
}

// spawn starts a program on a host, with additions to its environment. It is
// killed when the test ends, unless it has ended before, and what it printed is
// shown if the test has failed.
func spawn(t *testing.T, host *nettest.Host, env []string, argv ...string) *process {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{host: host, output: &nettest.Output{}, ended: make(chan struct{})}
	p.cmd = host.Command(ctx, argv[0], argv[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	p.cmd.Env = append(os.Environ(), env...)
	require.NoError(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // its result is in ProcessState
		close(p.ended)
	}()
	t.Cleanup(func() {
		cancel()
		<-p.ended
		if t.Failed() {
			t.Logf("%s on %s\n%s", strings.Join(argv, " "), host.Name, p.output)
		}
	})
	return p
}

func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(s))
}

// exitCode waits for the process to end. A process ended by a signal has -1.
func (p *process) exitCode(t *testing.T) int {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		require.Fail(t, "it does not end", "%s", p.cmd)
	}
	return p.cmd.ProcessState.ExitCode()
}

// result is what a program that has ended printed, and its exit code.
type result struct {
	code           int
	stdout, stderr string
}

// command runs the binary on a host to its end, in the given environment (nil:
// that of the tests).
func command(t *testing.T, host *nettest.Host, env []string, args ...string) result {
	t.Helper()
	return runToEnd(t, host, env, append([]string{os.Getenv(binaryVariable)}, args...)...)
}

func runToEnd(t *testing.T, host *nettest.Host, env []string, argv ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := host.Command(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Env = &stdout, &stderr, env
	err := cmd.Run()
	if !errors.As(err, new(*exec.ExitError)) {
		require.NoError(t, err)
	}
	require.NoError(t, ctx.Err(), "%v does not end; it said:\n%s%s", argv, &stdout, &stderr)
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}
