package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/iptables"
	"github.com/userspace-proxy/userspace-proxy/nftables"
	"github.com/userspace-proxy/userspace-proxy/service"
)

const nobody = 65534

// copyOfTests is this test binary where every user may execute it.
func copyOfTests(t *testing.T) string {
	t.Helper()
	self, err := os.Open("/proc/self/exe")
	require.NoError(t, err)
	defer self.Close()
	path := filepath.Join(openDir(t), "userspace-proxy")
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	require.NoError(t, err)
	_, err = io.Copy(to, self)
	require.NoError(t, errors.Join(err, to.Close()))
	return path
}

// asNobody runs the program as a user without rights.
func asNobody(t *testing.T, binary string, args ...string) (code int, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = "/"
	cmd.Env = programEnv(t)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	var out bytes.Buffer
	cmd.Stderr = &out
	err := cmd.Run()
	require.NotNil(t, cmd.ProcessState, "%v", err)
	return cmd.ProcessState.ExitCode(), out.String()
}

// TestWithoutRights cannot be parallel: its programs serve this machine for a moment,
// as others' do.
func TestWithoutRights(t *testing.T) {
	nettest.Need(t, "nft")
	binary := copyOfTests(t)
	dir := openDir(t)
	file := write(t, dir, "services.yaml", aService)
	secret := filepath.Join(dir, "secret")
	require.NoError(t, os.Mkdir(secret, 0o700))
	status := []string{"--log-level=error", "--healthz-bind-address=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0"}

	for name, tt := range map[string]struct {
		args []string
		code int
		says string
	}{
		"unreadable directory": {
			append(status, "--file", secret), 2,
			"--file: " + secret + ": permission denied",
		},
		"unreadable directory, plan": {
			[]string{"plan", "--file", secret}, 2,
			"--file: " + secret + ": permission denied",
		},
		"no right to change rules": {
			append(status, "--file", file, "--redirect=nftables"), 1,
			"--redirect=nftables: no right to change rules: needs root or CAP_NET_ADMIN (ambient, for a user who is not root, so that nft inherits it), or use --redirect=none",
		},
		"no right to change rules, auto": {
			append(status, "--file", file), 1,
			"--redirect=auto: no rules work here, use --redirect=none to do without\n" +
				"userspace-proxy: nftables: " + nftables.ErrNoRight.Error() + "\n" +
				"userspace-proxy: iptables: " + iptables.ErrNoRight.Error(),
		},
		"no right to dial from clients' addresses": {
			append(status, "--file", file, "--transparent"), 1,
			"--transparent: no right to dial from clients' addresses: needs root or CAP_NET_ADMIN, or leave --transparent out",
		},
		"no right to clean up": {
			[]string{"cleanup"}, 1,
			"no right to look for rules and addresses and to remove them: needs root or CAP_NET_ADMIN",
		},
	} {
		t.Run(name, func(t *testing.T) { // one after the other: each would serve this machine
			code, stderr := asNobody(t, binary, tt.args...)
			assert.Equal(t, tt.code, code)
			assert.Equal(t, lines(tt.says), stderr)
		})
	}
}

// TestPlanNeedsNoRights, and neither does what needs no rules.
func TestPlanNeedsNoRights(t *testing.T) {
	t.Parallel()
	binary := copyOfTests(t)
	file := write(t, openDir(t), "services.yaml", aService)
	code, stderr := asNobody(t, binary, "plan", "--file", file, "-o", "nft")
	assert.Zero(t, code)
	assert.Empty(t, stderr)
}

// TestNoNFT cannot be parallel: it takes the programs away from all of us.
func TestNoNFT(t *testing.T) {
	path := write(t, t.TempDir(), "services.yaml", aService)
	t.Setenv("PATH", "")
	const noNFT = "nft not found in PATH: install nftables or use --redirect=none"
	noIPTables := iptables.ErrNoIPTables.Error()
	for way, says := range map[string]string{
		"auto": "no rules work here, use --redirect=none to do without\n" +
			"userspace-proxy: nftables: " + noNFT + "\nuserspace-proxy: iptables: iptables " + noIPTables,
		"nftables": noNFT,
		"iptables": "iptables " + noIPTables,
	} {
		code, _, stderr := run(t, "", "--log-level=error", "--file", path, "--redirect="+way,
			"--healthz-bind-address=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0")
		assert.Equal(t, 1, code)
		assert.Equal(t, lines("--redirect="+way+": "+says), stderr)
	}
	code, stdout, stderr := run(t, "", "cleanup")
	assert.Zero(t, code)
	assert.Equal(t, "nftables is not installed: rules that a run left while it was are not looked for\n"+
		"iptables is not installed: rules that a run left while it was are not looked for\n", stderr)
	assert.Equal(t, "no rules and no addresses of userspace-proxy are left\n", stdout)
}

// TestNFTables: the program as it is on a node: it chooses nftables, serves a
// neighbour, and leaves rules and addresses until cleanup, which may come twice.
func TestNFTables(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft", "ip")
	bed := nettest.New(t)
	bed.Back.ServeTCP(t, "10.10.2.2:8080", nettest.Banner("one"))
	file := write(t, t.TempDir(), "services.yaml", manifest("10.96.0.10", []int{80}, "10.10.2.2:8080"))
	self, err := os.Executable()
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var out nettest.Output
	cmd := bed.Node.Command(ctx, self, "--file", file, "--sync-period=200ms")
	cmd.Env = programEnv(t)
	cmd.Stderr = &out
	require.NoError(t, cmd.Start())
	find(t, &out, `redirect: nftables \(--redirect=auto; nftables v\S+ .*works here\), listeners on 169\.254\.77\.1 and fd77::1`)
	find(t, &out, `serving 1 port of 1 service at 1 portal through nftables"`)
	banner, err := bed.Client.ReadBanner(t.Context(), "10.96.0.10:80")
	require.NoError(t, err)
	assert.Equal(t, "one", strings.TrimSpace(banner))
	body, err := bed.Node.Get(t.Context(), "http://127.0.0.1:10249/statusz")
	require.NoError(t, err)
	var s statusz
	require.NoError(t, json.Unmarshal([]byte(body), &s))
	assert.Equal(t, "nftables", s.Redirect)
	assert.Equal(t, []string{bed.Node.Addr(service.IPv4).String(), bed.Node.Addr(service.IPv6).String()}, s.Node.Addresses)

	bed.Node.Output(t, "ip", "address", "del", "169.254.77.1/32", "dev", "lo") // a network manager did that
	require.Eventually(t, func() bool {
		banner, err := bed.Client.ReadBanner(t.Context(), "10.96.0.10:80")
		return err == nil && strings.TrimSpace(banner) == "one"
	}, patience, 20*time.Millisecond, "the listening address comes back")

	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait(), "%s", &out)

	state := func() string {
		return bed.Node.Output(t, "nft", "list", "ruleset") + bed.Node.Output(t, "ip", "address")
	}
	assert.Contains(t, state(), "table ip userspace-proxy")
	assert.Contains(t, state(), "169.254.77.1")
	for range 2 {
		cmd := bed.Node.Command(t.Context(), self, "cleanup")
		cmd.Env = programEnv(t)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		assert.Equal(t, "no rules and no addresses of userspace-proxy are left\n", string(out))
		assert.NotContains(t, state(), "userspace-proxy")
		assert.NotContains(t, state(), "169.254.77.1")
	}
}
