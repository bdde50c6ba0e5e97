package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
)

// step is a command of a walk-through and what it shows there.
type step struct{ command, shows string }

// steps are those of the console blocks in a text, in their order.
func steps(text string) []step {
	var all []step
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(text, -1) {
		for line := range strings.Lines(block[1]) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				all = append(all, step{command: strings.TrimSpace(command)})
			} else if len(all) > 0 {
				all[len(all)-1].shows += line
			}
		}
	}
	return all
}

// pattern matches what a step shows: "…" is anything on a line, or, alone on
// one, any lines.
func (s step) pattern() *regexp.Regexp {
	p := regexp.QuoteMeta(s.shows)
	p = regexp.MustCompile(`(?m)^…\n`).ReplaceAllString(p, "(?s:.*)")
	p = strings.ReplaceAll(p, "…", ".*")
	p = regexp.MustCompile(` +`).ReplaceAllString(p, " +") // columns grow with what is in them
	return regexp.MustCompile(`^` + p + `$`)
}

// TestShop walks through examples/shop/README.md. The shop has namespaces of
// fixed names, so there is one at a time.
func TestShop(t *testing.T) {
	nettest.Need(t, "ip", "nginx", "redis-server", "redis-cli", "dnsmasq", "nc", "setpriv", "curl", "dig", "psql")
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(root, "examples", "shop", "README.md"))
	require.NoError(t, err)
	all := steps(string(text))
	require.Greater(t, len(all), 15)
	require.Equal(t, "examples/shop/run.sh", all[0].command)

	before := namespaces(t)
	var out nettest.Output
	shop := exec.Command(filepath.Join(root, "examples", "shop", "run.sh"))
	shop.Stdout, shop.Stderr = &out, &out
	shop.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's Ctrl-C reaches all of it
	require.NoError(t, shop.Start())
	ended := make(chan struct{})
	go func() {
		_ = shop.Wait() // its result is in ProcessState
		close(ended)
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-shop.Process.Pid, syscall.SIGINT) // where it has ended there is nobody
		<-ended
		if t.Failed() {
			t.Logf("run.sh:\n%s", &out)
		}
	})
	isOver := func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	}
	eventually(t, func() bool { return isOver() || strings.Contains(out.String(), "The shop is open.") }, saying("the shop to open"))
	require.False(t, isOver(), "the shop has closed")

	bin := t.TempDir() // the README calls bin/userspace-proxy
	require.NoError(t, os.Symlink(os.Getenv(binaryVariable), filepath.Join(bin, "userspace-proxy")))
	for _, s := range all[1:] {
		command := strings.ReplaceAll(s.command, "bin/userspace-proxy", filepath.Join(bin, "userspace-proxy"))
		got := ""
		eventually(t, func() bool { // a change is served soon, not at once
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			text, _ := exec.CommandContext(ctx, "bash", "-c", command).CombinedOutput() // what it printed says all
			got = string(text)
			return s.pattern().MatchString(got)
		}, func() string { return "$ " + s.command + "\nto show\n" + s.shows + "last:\n" + got })
	}

	dir := regexp.MustCompile(`/tmp/shop\.\w+`).FindString(out.String())
	require.DirExists(t, dir)
	require.NoError(t, syscall.Kill(-shop.Process.Pid, syscall.SIGINT))
	eventually(t, isOver, saying("the shop to close"))
	assert.Equal(t, before, namespaces(t), "what it made is gone")
	assert.NoDirExists(t, dir)
}

func namespaces(t *testing.T) string {
	t.Helper()
	all, err := exec.CommandContext(t.Context(), "ip", "netns", "list").Output()
	require.NoError(t, err)
	return string(all)
}
