package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
const patience = 3 * nettest.Patience // an API server and its tests share few cores

// eventually asks, in the test's own goroutine, until the condition holds.
func eventually(t *testing.T, condition func() bool, what func() string) {
	t.Helper()
	eventuallyWithin(t, patience, condition, what)
}

// recovery is patience with what must first find out that it has failed: a
// connection whose packets are lost shows only when nothing has come for long.
const recovery = 3 * time.Minute

func eventuallyWithin(t *testing.T, limit time.Duration, condition func() bool, what func() string) {
	t.Helper()
	for end := time.Now().Add(limit); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			require.Fail(t, "waited in vain for "+what())
		}
	}
}

// saying is what is waited for where it is known before.
func saying(format string, args ...any) func() string {
	return func() string { return fmt.Sprintf(format, args...) }
}

// proxy is the binary, running on a node.
type proxy struct {
	*process
	node *nettest.Host
	file string // of Services
}

// start runs the proxy on a node with a file of Services, and with additions to
// its environment, and waits until it is healthy. It is killed when the test
// ends, unless the test has stopped it, and its log is shown if the test has
// failed.
func start(t *testing.T, node *nettest.Host, env []string, services string, flags ...string) *proxy {
	t.Helper()
	file := writeFile(t, services)
	p := launch(t, node, env, file, append([]string{"--file", file}, flags...)...)
	p.becomeHealthy(t)
	return p
}

// startFrom is start with the sources that flags name.
func startFrom(t *testing.T, node *nettest.Host, flags ...string) *proxy {
	t.Helper()
	p := launch(t, node, nil, "", flags...)
	p.becomeHealthy(t)
	return p
}

func (p *proxy) becomeHealthy(t *testing.T) {
	t.Helper()
	eventually(t, func() bool { return p.hasEnded() || p.healthy() }, saying("a healthy proxy"))
	require.False(t, p.hasEnded(), "the proxy ended at its start")
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
	args := slices.Concat(program, []string{"run", "--log-level=debug"}, flags)
	p := &proxy{node: node, file: file}
	t.Cleanup(func() { // after the process has ended
		if p.process != nil {
			assert.NotContains(t, p.output.String(), "DATA RACE")
			assert.NotContains(t, p.output.String(), "panic:")
		}
	})
	p.process = spawn(t, node, env, args...)
	return p
}

func (p *proxy) healthy() bool {
	_, err := p.node.Get(context.Background(), healthURL)
	return err == nil
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

// stop ends the proxy as a supervisor does.
func (p *proxy) stop(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	require.Zero(t, p.exitCode(t), "exit code after SIGTERM")
}
