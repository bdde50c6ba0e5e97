package main

import (
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/demo"
)

// pasted runs a command as a person would who pastes it into a shell.
func pasted(t *testing.T, command string) (output string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", command)
	cmd.Env = programEnv(t)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		require.NoError(t, err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// distinct are the different lines of an output.
func distinct(output string) map[string]int {
	lines := map[string]int{}
	for line := range strings.Lines(output) {
		lines[strings.TrimSpace(line)]++
	}
	return lines
}

// TestDemo runs the very commands that the demo prints.
func TestDemo(t *testing.T) {
	t.Parallel()
	p := start(t, "", "demo", "--period=3s")
	dir := find(t, &p.stdout, `The Services are in (/\S+)/services.yaml`)[1]
	page := p.stdout.String()
	assert.NotContains(t, page, "\x1b", "no colours off a terminal")

	commands := regexp.MustCompile(`(?m)^ {4}(\S.*)$`).FindAllStringSubmatch(page, -1)
	require.Len(t, commands, 9)
	next := func(about string) (string, int) {
		t.Helper()
		command := commands[0][1]
		commands = commands[1:]
		output, code := pasted(t, command)
		t.Logf("%s\n$ %s\n%s", about, command, output)
		return output, code
	}

	output, code := next("another backend each time")
	assert.Zero(t, code)
	assert.GreaterOrEqual(t, len(distinct(output)), 2)

	output, code = next("a backend goes and comes back")
	assert.Zero(t, code)
	names := distinct(output)
	assert.Len(t, names, 3)
	for name := range names {
		assert.Regexp(t, `^hello from web-[123]$`, name, "no request fails")
	}
	for _, said := range []string{"web-3 has died; ", "web-3 is taken for not ready", "web-3 is back"} {
		assert.Contains(t, p.stdout.String(), said)
	}

	one, code := next("one client, one backend")
	assert.Zero(t, code)
	assert.Equal(t, 3, strings.Count(one, "hello from sticky-"))
	assert.Len(t, distinct(one), 1)
	other, code := next("another client, another backend")
	assert.Zero(t, code)
	assert.Len(t, distinct(other), 1)
	assert.NotEqual(t, one, other)

	output, _ = next("TCP")
	assert.Regexp(t, `^hello from (echo-[12])\necho-[12]: hello\n$`, output)
	output, _ = next("UDP")
	assert.Regexp(t, `^datagram-[12]: hello\n$`, output)

	output, code = next("no backend")
	assert.Equal(t, 7, code, "curl's code for a refused connection")
	assert.Contains(t, output, "127.64.")

	output, code = next("status")
	assert.Zero(t, code)
	assert.Contains(t, output, "serving 5 ports of 5 services at 5 portals without rules\n")
	assert.Contains(t, output, "; 0 problems\n")
	output, code = next("explain")
	assert.Zero(t, code)
	assert.Regexp(t, `^TCP 127\.64\.\S+: served by 127\.64\.\S+ \(web-[123]\)\n`, output)
	assert.Empty(t, commands)

	p.stop()
	assert.Zero(t, p.wait(t))
	assert.True(t, strings.HasSuffix(p.stdout.String(), "\nThe demo has ended and left nothing.\n"))
	assert.NoDirExists(t, dir)
	for line := range strings.Lines(p.stderr.String()) { // a busy machine may have no watch left
		assert.Contains(t, line, "fs.inotify.max_user_instances")
	}
}

// TestDemo_twice: a second demo takes other addresses and another port for its
// status.
func TestDemo_twice(t *testing.T) {
	t.Parallel()
	first, second := start(t, "", "demo"), start(t, "", "demo")
	status := regexp.MustCompile(`\S+ status.*`)
	find(t, &first.stdout, `left|/services.yaml`)
	find(t, &second.stdout, `left|/services.yaml`)
	assert.NotEqual(t, status.FindString(first.stdout.String()), status.FindString(second.stdout.String()))
	for _, p := range []*program{first, second} {
		p.stop()
		assert.Zero(t, p.wait(t))
	}
}

// TestDemoPage_onOneAddress: where there is one loopback address the page says so.
func TestDemoPage_onOneAddress(t *testing.T) {
	t.Parallel()
	at := func(addr string) demo.Service { return demo.Service{Addr: netip.MustParseAddrPort(addr)} }
	const says = "one loopback address"
	assert.Contains(t, demoPage{services: []demo.Service{at("127.0.0.1:1"), at("127.0.0.1:2")}}.String(), says)
	assert.NotContains(t, demoPage{services: []demo.Service{at("127.64.0.1:1"), at("127.64.0.2:2")}}.String(), says)
}

func TestStyle(t *testing.T) {
	t.Parallel()
	off := func(string) string { return "" }
	assert.Equal(t, "x", (&Main{Stdout: new(strings.Builder), Getenv: off}).style().Strong("x"))
	file, err := os.Create(t.TempDir() + "/out")
	require.NoError(t, err)
	defer file.Close()
	assert.Equal(t, "x", (&Main{Stdout: file, Getenv: off}).style().Faint("x"))

	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	defer terminal.Close()
	assert.Equal(t, "\x1b[1mx\x1b[0m", (&Main{Stdout: terminal, Getenv: off}).style().Strong("x"))
	for _, variable := range []string{"NO_COLOR=1", "TERM=dumb"} {
		name, value, _ := strings.Cut(variable, "=")
		m := &Main{Stdout: terminal, Getenv: func(key string) string {
			if key == name {
				return value
			}
			return ""
		}}
		assert.Equal(t, "x", m.style().Strong("x"), variable)
	}
}
