package main

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
)

// asProgram in the environment makes the test binary be userspace-proxy, for
// tests that need a process: another user, signals.
const asProgram = "TEST_AS_USERSPACE_PROXY"

// programEnv is asProgram's environment. A test binary that counts coverage
// writes its counts, whoever runs it, and files of another user are in its way.
func programEnv(t *testing.T) []string {
	t.Helper()
	dir := openDir(t)
	require.NoError(t, os.Chmod(dir, 0o777))
	return append(os.Environ(), asProgram+"=1", "GOCOVERDIR="+dir)
}

// openDir is a directory that other users may enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} {
		require.NoError(t, os.Chmod(d, 0o755))
	}
	return dir
}

// patience ends a test that has failed; nothing is asserted about time.
const patience = time.Minute

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	isolate()
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// golden compares with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), got, "%s; go test -update writes it anew", path)
}

// program is the real program, run in this process.
type program struct {
	stdout, stderr nettest.Output
	stop           context.CancelFunc // as the first signal does
	code           chan int
}

// start runs the program. It is stopped when the test ends.
func start(t *testing.T, stdin string, args ...string) *program {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &program{stop: cancel, code: make(chan int, 1)}
	m := Main{Name: os.Args[0], Stdin: strings.NewReader(stdin), Stdout: &p.stdout, Stderr: &p.stderr, Getenv: func(string) string { return "" }}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.code <- m.Run(ctx, args)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		if t.Failed() {
			t.Logf("%v\n%s%s", args, &p.stdout, &p.stderr)
		}
	})
	return p
}

// wait waits for the program's end and returns its exit code.
func (p *program) wait(t *testing.T) int {
	t.Helper()
	select {
	case code := <-p.code:
		return code
	case <-time.After(patience):
		require.Fail(t, "the program does not end")
		return -1
	}
}

// run runs the program to its end.
func run(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	p := start(t, stdin, args...)
	code = p.wait(t)
	return code, p.stdout.String(), p.stderr.String()
}

// find waits until what has been printed matches, and returns the groups.
func find(t *testing.T, in *nettest.Output, pattern string) []string {
	t.Helper()
	var found []string
	re := regexp.MustCompile(pattern)
	require.Eventually(t, func() bool {
		found = re.FindStringSubmatch(in.String())
		return found != nil
	}, patience, 10*time.Millisecond, "nothing like %q was printed", pattern)
	return found
}

// proxied starts "run" without rules and with a status server on free ports,
// and returns where health and status are.
func proxied(t *testing.T, stdin string, args ...string) (p *program, health, status string) {
	t.Helper()
	p = start(t, stdin, append([]string{
		"run", "--redirect=none", "--allow-loopback-endpoints", "--hostname-override=here",
		"--healthz-bind-address=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0",
	}, args...)...)
	health = "http://" + find(t, &p.stderr, `--healthz-bind-address: listening on ([0-9.:]+)`)[1]
	status = "http://" + find(t, &p.stderr, `--metrics-bind-address: listening on ([0-9.:]+)`)[1]
	return p, health, status
}

// get asks the status server.
func get(t *testing.T, url string) (code int, body string) {
	t.Helper()
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(url)
	require.NoError(t, err)
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(b)
}

// statusz is what the tests look at in /statusz.
type statusz struct {
	Version, Redirect, Summary, Failing string
	Node                                struct {
		Name      string
		Addresses []string
	}
	Sources []struct {
		Name, Age, Error    string
		Delivered           bool
		Services, Endpoints int
	}
	Ports []struct {
		Name, Family, Affinity, Source string
		Portals                        []struct{ Kind, Addr, Listener, State string }
		Endpoints                      []struct {
			Addr, Pod, Why string
			Picked         bool
			Connections    int
		}
	}
	Problems []struct{ Object, Field, Reason, Detail, Advice string }
}

func look(t *testing.T, status string) statusz {
	t.Helper()
	code, body := get(t, status+"/statusz")
	require.Equal(t, http.StatusOK, code)
	var s statusz
	require.NoError(t, json.Unmarshal([]byte(body), &s))
	return s
}

// write makes a file in a directory and returns its path.
func write(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path+"~", []byte(content), 0o644))
	require.NoError(t, os.Rename(path+"~", path))
	return path
}
