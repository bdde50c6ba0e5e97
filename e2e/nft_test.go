package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// TestCase32_NFTFailsWhileRunning: nft fails, vanishes and hangs. What was served
// is served, people are told, the log is not filled, and when nft works again
// what has changed meanwhile is served without anybody's help.
func TestCase32_NFTFailsWhileRunning(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft")
	bed := nettest.New(t)
	dir := t.TempDir()
	nft, mood := filepath.Join(dir, "nft"), filepath.Join(dir, "mood")
	binary, err := exec.LookPath("nft")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(nft, []byte(fmt.Sprintf("#!/bin/sh\n[ ! -e %[1]s ] || . %[1]s\nexec %[2]s \"$@\"\n", mood, binary)), 0o755))
	become := func(script string) {
		t.Helper()
		require.NoError(t, os.WriteFile(mood+"~", []byte(script), 0o644))
		require.NoError(t, os.Rename(mood+"~", mood))
	}
	tcp := serveNamed(t, bed.Back, "tcp", 8080, "a")
	numbered := func(n int) object {
		return object{name: fmt.Sprint("s", n), clusterIPs: []string{fmt.Sprintf("10.96.1.%d", n)},
			ports: []port{{"stream", service.TCP, 80, 0}}, endpoints: map[string][]string{"stream": tcp[:1]}}
	}
	at := func(n int) target { return target{"tcp", numbered(n).clusterIPs[0] + ":80"} }
	all := []object{numbered(1)}
	p := start(t, bed.Node, []string{"PATH=" + dir + ":" + os.Getenv("PATH")}, manifest(all...), "--redirect=nftables", "--sync-period=2s")
	requireAnswers(t, bed.Client, at(1), "a")

	for i, test := range []struct {
		what        string
		begin, end  func()
		says, wiped string // what the status page says; "wiped": our table is deleted meanwhile
	}{
		{what: "fails", says: "disk on fire",
			begin: func() { become("echo disk on fire >&2; exit 1\n") }, end: func() { become("") }},
		{what: "vanishes", says: "nft not found in PATH",
			begin: func() { require.NoError(t, os.Rename(nft, nft+".away")) }, end: func() { require.NoError(t, os.Rename(nft+".away", nft)) }},
		{what: "hangs", says: "nft was ended before it was done",
			begin: func() { become("exec sleep 1000\n") }, end: func() { become("") }},
		{what: "hangs while our table is deleted", says: "nft was ended before it was done", wiped: "ip userspace-proxy",
			begin: func() { become("exec sleep 1000\n") }, end: func() { become("") }},
	} {
		logged := strings.Count(p.output.String(), "cannot reconcile")
		test.begin()
		all = append(all, numbered(2+i))
		p.write(t, manifest(all...))
		eventually(t, func() bool {
			body, err := p.node.Get(t.Context(), statusURL)
			require.NoError(t, err)
			return strings.Contains(body, test.says)
		}, saying("the status page to tell that nft %s", test.what))
		for n := range i + 1 {
			requireAnswers(t, bed.Client, at(1+n), "a")
		}
		if test.wiped != "" {
			bed.Node.Output(t, binary, append([]string{"delete", "table"}, strings.Fields(test.wiped)...)...)
		}
		test.end()
		for n := range i + 2 {
			requireAnswers(t, bed.Client, at(1+n), "a")
		}
		eventually(t, p.healthy, saying("a healthy proxy"))
		assert.Less(t, strings.Count(p.output.String(), "cannot reconcile")-logged, 20, "lines in the log")
	}
	p.stop(t)
}

// TestCase31_WipedTablesComeBack: whatever of our tables somebody removes, they
// come back as they were, are counted, and the count is shown.
func TestCase31_WipedTablesComeBack(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft")
	bed := nettest.New(t)
	lead := way{name: "nftables", redirect: "nftables"}
	p := lead.start(t, bed.Node, manifest(changing(map[string][]string{
		"stream": serveNamed(t, bed.Back, "tcp", 8080, "a"), "datagram": serveNamed(t, bed.Back, "udp", 8080, "a"),
	})))
	requireAnswersEverywhere(t, bed, "a")
	rules := lead.dump(t, bed.Node)
	for i, wipe := range []string{
		"delete table ip userspace-proxy", "flush ruleset", "flush chain ip6 userspace-proxy prerouting",
		"delete element ip userspace-proxy portals { 10.96.0.10 . udp . 80 }",
	} {
		bed.Node.Output(t, "nft", wipe)
		eventually(t, func() bool {
			body, err := p.node.Get(t.Context(), statusURL)
			require.NoError(t, err)
			return strings.Contains(body, fmt.Sprintf(`"rulesRestored": %d,`, i+1))
		}, saying("the status page to tell of the rules after %q", wipe))
		require.Equal(t, rules, lead.dump(t, bed.Node), "after %q", wipe)
		require.Equal(t, i+1, p.restored(t))
		requireAnswersEverywhere(t, bed, "a")
	}
	assert.Equal(t, p.restored(t), strings.Count(p.output.String(), "rules are being restored"), "lines in the log")
	p.stop(t)
}
