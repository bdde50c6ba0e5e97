package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
)

// Where a running proxy tells about itself, on the node.
const (
	healthURL  = "http://127.0.0.1:10256/healthz"
	statusURL  = "http://127.0.0.1:10249/statusz"
	metricsURL = "http://127.0.0.1:10249/metrics"
)

// patience ends a test that has failed; nothing is asserted about time.
const patience = nettest.Patience

// eventually asks, in the test's own goroutine, until the condition holds.
func eventually(t *testing.T, condition func() bool, what func() string) {
	t.Helper()
	for end := time.Now().Add(patience); !condition(); time.Sleep(20 * time.Millisecond) {
		require.True(t, time.Now().Before(end), "waited in vain for %s", what())
	}
}

// saying is what is waited for where it is known before.
func saying(format string, args ...any) func() string {
	return func() string { return fmt.Sprintf(format, args...) }
}

// proxy is the binary, running on a node.
type proxy struct {
	node   *nettest.Host
	file   string // of Services
	cmd    *exec.Cmd
	output *output
	ended  chan struct{} // closed when the process has
}

// start runs the proxy on a node with a file of Services, and with additions to
// its environment, and waits until it is healthy. It is killed when the test
// ends, unless the test has stopped it, and its log is shown if the test has
// failed.
func start(t *testing.T, node *nettest.Host, env []string, services string, flags ...string) *proxy {
	t.Helper()
	file := writeFile(t, services)
	p := launch(t, node, env, file, append([]string{"--file", file}, flags...)...)
	eventually(t, func() bool { return p.hasEnded() || p.healthy() }, saying("a healthy proxy"))
	require.False(t, p.hasEnded(), "the proxy ended at its start")
	return p
}

// writeFile makes a file of Services.
func writeFile(t *testing.T, services string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "services.yaml")
	require.NoError(t, os.WriteFile(file, []byte(services), 0o644))
	return file
}

// launch is start for a file that is there, and waits for nothing.
func launch(t *testing.T, node *nettest.Host, env []string, file string, flags ...string) *proxy {
	t.Helper()
	return launchBy(t, node, []string{os.Getenv(binaryVariable)}, env, file, flags...)
}

// launchBy is launch by way of another program.
func launchBy(t *testing.T, node *nettest.Host, program, env []string, file string, flags ...string) *proxy {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	args := append([]string{"run", "--log-level=debug"}, flags...)
	p := &proxy{node: node, file: file, output: &output{}, ended: make(chan struct{})}
	p.cmd = node.Command(ctx, program[0], append(program[1:len(program):len(program)], args...)...)
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
			t.Logf("userspace-proxy %s\n%s", strings.Join(args, " "), p.output)
		}
		assert.NotContains(t, p.output.String(), "DATA RACE")
		assert.NotContains(t, p.output.String(), "panic:")
	})
	return p
}

func (p *proxy) healthy() bool {
	_, err := p.node.Get(context.Background(), healthURL)
	return err == nil
}

func (p *proxy) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// write replaces the file of Services, as editors do: the new one is moved over it.
func (p *proxy) write(t *testing.T, services string) {
	t.Helper()
	next := p.file + "~"
	require.NoError(t, os.WriteFile(next, []byte(services), 0o644))
	require.NoError(t, os.Rename(next, p.file))
}

// problems are those that the proxy tells of, as JSON each.
func (p *proxy) problems(t *testing.T) []string {
	t.Helper()
	body, err := p.node.Get(t.Context(), statusURL)
	require.NoError(t, err)
	var status struct{ Problems []json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(body), &status), "%s", body)
	var all []string
	for _, one := range status.Problems {
		all = append(all, string(one))
	}
	return all
}

func (p *proxy) signal(t *testing.T, s os.Signal) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(s))
}

// exitCode waits for the process to end. A process ended by a signal has -1.
func (p *proxy) exitCode(t *testing.T) int {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		require.Fail(t, "the proxy does not end")
	}
	return p.cmd.ProcessState.ExitCode()
}

// stop ends the proxy as a supervisor does.
func (p *proxy) stop(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	require.Zero(t, p.exitCode(t), "exit code after SIGTERM")
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

// output is what a process has printed so far.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}
