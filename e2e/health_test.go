package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// probe is what a running proxy answers one of the probes' questions.
type probe struct {
	Code int `json:"-"`

	Healthy      bool
	NodeEligible *bool
	Status       map[string]struct{ Healthy bool }
	Failing      string
	StaleSources []string
}

// ask asks a probe's question. The code is 0 where nobody answers.
func (p *proxy) ask(path string) (got probe) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:10256"+path, http.NoBody)
	if err != nil {
		return probe{}
	}
	response, err := p.node.HTTPClient().Do(request)
	if err != nil {
		return probe{}
	}
	defer func() { _ = response.Body.Close() }()
	if err := json.NewDecoder(response.Body).Decode(&got); err != nil {
		return probe{}
	}
	got.Code = response.StatusCode
	return got
}

// expectProbes waits until the answers to /livez, /healthz and /readyz are these.
func (p *proxy) expectProbes(t *testing.T, want ...int) {
	t.Helper()
	var got []int
	eventually(t, func() bool {
		got = nil
		for _, path := range []string{"/livez", "/healthz", "/readyz"} {
			got = append(got, p.ask(path).Code)
		}
		return assert.ObjectsAreEqual(want, got)
	}, func() string { return fmt.Sprintf("%d of /livez, /healthz and /readyz; last: %d", want, got) })
}

// fickleNFT is a directory for PATH with an nft alone, that does what files
// beside it say, once a probe is over: with "hang" it hangs, with "fail" it fails.
func fickleNFT(t *testing.T) string {
	t.Helper()
	genuine, err := exec.LookPath("nft")
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "nft"), []byte(fmt.Sprintf(`#!/bin/sh
PATH=/usr/sbin:/usr/bin:/sbin:/bin
case "$*" in
*--check*) exec %[2]s "$@" ;;
*"-f -"*)
	script=$(cat)
	case $script in
	*-probe-*) ;;
	*)
		while [ -e %[1]s/hang ]; do sleep 0.1; done
		[ ! -e %[1]s/fail ] || { echo "Error: Could not process rule" >&2; exit 1; }
		;;
	esac
	printf '%%s\n' "$script" | %[2]s "$@"
	;;
*) exec %[2]s "$@" ;;
esac
`, dir, genuine)), 0o755))
	return dir
}

func touch(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, nil, 0o644))
}

// TestHealth_rulesCannotBeApplied: with nft failing, and gone, changes are not
// served, which is said at once to those who want to know whether all is well,
// and to those who may restart the proxy when it has gone on for too long.
func TestHealth_rulesCannotBeApplied(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft")
	for name, lose := range map[string]func(*testing.T, string) (restore func()){
		"failing": func(t *testing.T, dir string) func() {
			touch(t, dir+"/fail")
			return func() { require.NoError(t, os.Remove(dir+"/fail")) }
		},
		"missing": func(t *testing.T, dir string) func() {
			require.NoError(t, os.Rename(dir+"/nft", dir+"/nft.away"))
			return func() { require.NoError(t, os.Rename(dir+"/nft.away", dir+"/nft")) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bed, path := nettest.New(t), fickleNFT(t)
			p := start(t, bed.Node, []string{"PATH=" + path}, manifest(changing(map[string][]string{
				"stream": serveNamed(t, bed.Back, "tcp", 8080, "a"),
			})), "--redirect=nftables", "--sync-period=5s")
			p.expectProbes(t, 200, 200, 200)
			well := p.ask("/healthz")
			assert.True(t, well.Healthy && *well.NodeEligible && well.Status["IPv4"].Healthy && well.Status["IPv6"].Healthy, "%+v", well)
			assert.Nil(t, p.ask("/livez").NodeEligible)

			restore := lose(t, path)
			p.write(t, manifest(changing(nil), good2()))
			p.expectProbes(t, 200, 200, 503)
			p.expectProbes(t, 503, 503, 503)
			ill := p.ask("/livez")
			assert.False(t, ill.Healthy || ill.Status["IPv4"].Healthy, "%+v", ill)
			assert.Contains(t, ill.Failing, "listeners and rules")
			restore()
			p.expectProbes(t, 200, 200, 200)
		})
	}
}

// good2 is a Service at an address of its own, so that rules change.
func good2() object {
	o := good()
	o.name, o.clusterIPs = "second", []string{"10.96.0.11"}
	return o
}

// TestHealth_beforeTheFirstSync: nothing is promised before rules are in force,
// and nobody is asked to restart the proxy, until it has taken too long.
func TestHealth_beforeTheFirstSync(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft")
	bed, path := nettest.New(t), fickleNFT(t)
	touch(t, path+"/hang")
	file := writeFile(t, manifest(good()))
	p := launch(t, bed.Node, []string{"PATH=" + path}, file, "--file", file, "--redirect=nftables", "--sync-period=5s")
	p.expectProbes(t, 200, 503, 503)
	eventually(t, func() bool { return p.ask("/readyz").Failing == "the first reconcile is not done" }, saying("the first reconcile to be what is waited for"))
	p.expectProbes(t, 503, 503, 503)
	assert.NotEmpty(t, p.ask("/livez").Failing) // nft's own time-out may have come by now, and then something fails
}

// TestHealth_stuckReconcile: one that does not end is noticed.
func TestHealth_stuckReconcile(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft")
	bed, path := nettest.New(t), fickleNFT(t)
	p := start(t, bed.Node, []string{"PATH=" + path}, manifest(good()), "--redirect=nftables", "--sync-period=5s")
	p.expectProbes(t, 200, 200, 200)
	touch(t, path+"/hang")
	p.write(t, manifest(good(), good2()))
	p.expectProbes(t, 503, 503, 503)
	assert.NotEmpty(t, p.ask("/livez").Failing) // nft's own time-out may have come by now, and then something fails
}

// TestHealth_staleSource: a source that fails is named, and its last state is
// served on, so no probe fails.
func TestHealth_staleSource(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft")
	bed := nettest.New(t)
	p := start(t, bed.Node, nil, manifest(changing(map[string][]string{
		"stream": serveNamed(t, bed.Back, "tcp", 8080, "a"),
	})), "--redirect=nftables")
	assert.Empty(t, p.ask("/healthz").StaleSources)
	require.NoError(t, os.Remove(p.file))
	eventually(t, func() bool { return len(p.ask("/healthz").StaleSources) > 0 }, saying("a source to be stale"))
	p.expectProbes(t, 200, 200, 200)
	assert.Equal(t, []string{"file"}, p.ask("/readyz").StaleSources)
	requireAnswers(t, bed.Client, target{"tcp", "10.96.0.10:80"}, "a")
}

// TestHealth_descriptorsUsedUp: as many connections as there are descriptors
// for send new clients elsewhere, and have nobody restart the proxy.
func TestHealth_descriptorsUsedUp(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft", "prlimit")
	bed := nettest.New(t)
	file := writeFile(t, manifest(changing(map[string][]string{"stream": serveNamed(t, bed.Back, "tcp", 8080, "a")})))
	p := launchBy(t, bed.Node, []string{"prlimit", "--nofile=200", os.Getenv(binaryVariable)}, nil, file, "--file", file, "--redirect=nftables")
	p.expectProbes(t, 200, 200, 200)

	// 100 are shared. Listeners have some, some are kept for those to come, and a
	// connection takes two.
	var open []net.Conn
	for p.ask("/healthz").Failing == "" {
		require.Less(t, len(open), 50)
		c, err := bed.Client.Dial(t.Context(), "tcp", "10.96.0.10:80")
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		require.NoError(t, c.SetDeadline(time.Now().Add(3*patience)))
		requireEcho(t, c, "", "a\n")
		open = append(open, c)
	}
	assert.Greater(t, len(open), 35)
	p.expectProbes(t, 200, 503, 503)
	assert.Equal(t, "descriptors are used up: new clients wait", p.ask("/healthz").Failing)
	require.NoError(t, open[0].Close())
	p.expectProbes(t, 200, 200, 200)
}

// TestHealth_bothFamilies: without a flag about it the node is asked at its addresses
// in both families, by a kubelet on it and by load balancers elsewhere, and so it is
// after another process has taken over.
func TestHealth_bothFamilies(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft")
	bed := nettest.New(t)
	p := start(t, bed.Node, nil, manifest(good()), "--redirect=nftables")
	requireLive := func() {
		t.Helper()
		for _, from := range []*nettest.Host{bed.Node, bed.Client} {
			for _, f := range service.Families() {
				at := net.JoinHostPort(bed.Node.Addr(f).String(), "10256")
				eventually(t, func() bool {
					_, err := from.Get(t.Context(), "http://"+at+"/livez")
					return err == nil
				}, saying("/livez at %s, asked from %s", at, from.Name))
			}
		}
	}
	requireLive()
	metrics := net.JoinHostPort(bed.Node.Addr(service.IPv4).String(), "10249")
	bed.Client.AssertRefused(t, "tcp", metrics) // they are on loopback alone

	next := p.takeOver(t, way{redirect: "nftables"})
	p.stop(t)
	requireLive()
	next.expectProbes(t, 200, 200, 200)
	assert.NotContains(t, next.output.String(), "--healthz-bind-address [::]:10256: ")
}
