package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/demo"
	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
)

// root is the repository.
const root = "../.."

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	return string(text)
}

// console is a command of the README and what it prints there.
type console struct{ command, output string }

func consoles(t *testing.T) []console {
	t.Helper()
	var all []console
	for _, block := range regexp.MustCompile("(?s)```console\n\\$ (.*?)\n(.*?)```").FindAllStringSubmatch(readme(t), -1) {
		all = append(all, console{block[1], block[2]})
	}
	require.NotEmpty(t, all)
	return all
}

// TestREADME_commands: what the README shows is what its commands print. It is
// not parallel, so that the demo gets its usual addresses.
func TestREADME_commands(t *testing.T) {
	nettest.Need(t, "nft")
	bed := nettest.New(t)
	clone := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(clone, "bin"), 0o755))
	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(self, filepath.Join(clone, "bin", "userspace-proxy")))
	examples, err := filepath.Abs(filepath.Join(root, "examples"))
	require.NoError(t, err)
	require.NoError(t, os.Symlink(examples, filepath.Join(clone, "examples")))

	for _, c := range consoles(t) {
		command := strings.TrimPrefix(c.command, "sudo ")
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		cmd := bed.Node.Command(ctx, "bash", "-c", "exec "+command)
		cmd.Dir = clone
		cmd.Env = programEnv(t)
		switch {
		case command == "make demo":
			d, err := demo.Start()
			require.NoError(t, err)
			require.NoError(t, d.Close())
			d.Dir = regexp.MustCompile(`/tmp/userspace-proxy-demo-\d+`).FindString(c.output)
			page := demoPage{services: d.Services, dir: d.Dir, status: "127.0.0.1:10249", program: "bin/userspace-proxy"}
			_, printed, _ := strings.Cut(c.output, "\n") // the first line is make's
			assert.Equal(t, page.String(), printed+"\n")
		case strings.Contains(command, " run "):
			var out nettest.Output
			cmd.Stderr = &out
			require.NoError(t, cmd.Start())
			for line := range strings.Lines(c.output) {
				find(t, &out, logged(t, line))
			}
			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
			require.NoError(t, cmd.Wait())
		default:
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s: %s", command, out)
			assert.Equal(t, c.output, string(out), command)
		}
		cancel()
	}
}

// logged is a pattern for a line of the log, as it is off a terminal, wherever
// and whenever it is written.
func logged(t *testing.T, line string) string {
	t.Helper()
	message := regexp.MustCompile(`^INFO\[\S+\] (.*?)( +source=file)?\n$`).FindStringSubmatch(line)
	require.NotNil(t, message, line)
	pattern := regexp.QuoteMeta(message[1])
	for _, varies := range []string{"v0.0.0 (go1.26.8, linux/amd64)", "v1.0.6 (Lester Gooch #5)", "19864", "14898"} {
		pattern = strings.ReplaceAll(pattern, regexp.QuoteMeta(varies), ".*")
	}
	return `level=info msg="?` + pattern + `"?( source=file)?\n`
}

// TestREADME_demo: what the README shows of the demo is what it does. The demo
// runs beside others, so that its addresses may not be the usual ones.
func TestREADME_demo(t *testing.T) {
	t.Parallel()
	bed := nettest.New(t)
	p := bed.Node.Command(t.Context(), os.Args[0], "demo", "--period=2s", "--trace-connections", "service=web")
	p.Env = programEnv(t)
	var stdout, stderr nettest.Output
	p.Stdout, p.Stderr = &stdout, &stderr
	require.NoError(t, p.Start())
	defer func() {
		require.NoError(t, p.Process.Signal(syscall.SIGTERM))
		require.NoError(t, p.Wait())
	}()
	web := find(t, &stdout, `(?s)curl -s (http://\S+); done.*served at once`)[1]
	in := func(name string, arg ...string) string {
		cmd := bed.Node.Command(t.Context(), name, arg...)
		cmd.Env = programEnv(t)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}

	assert.Contains(t, in("curl", "-s", web), "hello from web-")
	find(t, &stderr, `msg="ended \(eof\)`)
	var said, shown []string
	for _, line := range regexp.MustCompile(`msg="(.*?)" client=\S+ connection=1 service="default/web:http/TCP"\n`).FindAllStringSubmatch(stderr.String(), -1) {
		said = append(said, alike(line[1]))
	}
	for _, line := range regexp.MustCompile(`INFO\[\S+\] (.*?) +client=\S+ connection=1 service="default/web:http/TCP"\n`).FindAllStringSubmatch(readme(t), -1) {
		shown = append(shown, alike(line[1]))
	}
	assert.ElementsMatch(t, shown, said, "who closes first is chance")

	status := regexp.MustCompile("(?s)\n\\$ bin/userspace-proxy status web\n(.*?)```").FindStringSubmatch(readme(t))
	require.NotNil(t, status)
	address := regexp.MustCompile(`--address \S+`).FindString(stdout.String())
	var last string
	assert.Eventually(t, func() bool { // until web-3 dies
		last = in(os.Args[0], append([]string{"status", "web"}, strings.Fields(address)...)...)
		return alike(last) == alike(status[1])
	}, patience, 10*time.Millisecond)
	assert.Equal(t, alike(status[1]), alike(last))
}

// alike is a text without what differs from one machine, or moment, to another.
func alike(s string) string {
	for _, varies := range []struct{ what, as string }{
		{`127\.64\.\d+\.(\d+):\d+`, "127.64.0.$1"},
		{`\b[0-9.]+(µs|ms|s)\b`, "TIME"},
		{`on \S+, up`, "on here, up"},
		{`rules: none, \S+`, "rules: none, VERSION"},
		{`\d connections?, `, "SOME connections, "},
		{` +`, " "},
	} {
		s = regexp.MustCompile(varies.what).ReplaceAllString(s, varies.as)
	}
	return s
}
