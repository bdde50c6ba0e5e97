package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/explain"
	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
)

// witness is a proxy on the node of a bed, whose explanations are held against
// what real clients meet.
type witness struct {
	t   *testing.T
	bed *nettest.Bed
	log nettest.Output
}

// newWitness has the proxy serve testdata/explain/services.yaml. Every backend
// says its own address; of 10.10.2.9 there is none.
func newWitness(t *testing.T, redirect string) *witness {
	t.Helper()
	w := &witness{t: t, bed: nettest.New(t)}
	for _, addr := range []string{"10.10.2.2:8080", "10.10.2.3:8080", "[fd10:2::2]:8080", "[fd10:2::3]:8080"} {
		w.bed.Back.ServeTCP(t, addr, nettest.Banner(addr))
		w.bed.Back.ServeUDP(t, addr, nettest.Named(addr))
	}
	w.bed.Node.ServeTCP(t, "10.10.1.1:2222", nettest.Banner("another program"))
	if redirect == redirectNone { // listeners stand on the portals, which must be the node's
		for n := range 12 {
			w.bed.Node.Output(t, "ip", "address", "add", netip.AddrFrom4([4]byte{10, 96, 0, byte(n + 1)}).String()+"/32", "dev", "lo")
		}
		for _, a := range []string{"fd96::1", "fd96::2", "fd96::3", "203.0.113.1"} {
			w.bed.Node.Output(t, "ip", "address", "add", a, "dev", "lo")
		}
	}
	w.run("--redirect="+redirect, "--file", filepath.Join("testdata", "explain", "services.yaml"),
		"--hostname-override=node", "--nodeport-addresses=10.10.2.0/24")
	return w
}

// program is this program on the node.
func (w *witness) program(ctx context.Context, args ...string) (run func() (int, string), start func()) {
	self, err := os.Executable()
	require.NoError(w.t, err)
	cmd := w.bed.Node.Command(ctx, self, args...)
	cmd.Env = programEnv(w.t)
	run = func() (int, string) {
		var out, log bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &log
		err := cmd.Run()
		require.NotNil(w.t, cmd.ProcessState, "%v", err)
		assert.Empty(w.t, log.String())
		return cmd.ProcessState.ExitCode(), out.String()
	}
	start = func() {
		cmd.Stderr = &w.log
		require.NoError(w.t, cmd.Start())
		w.t.Cleanup(func() {
			assert.NoError(w.t, cmd.Process.Signal(syscall.SIGTERM))
			assert.NoError(w.t, cmd.Wait())
			if w.t.Failed() {
				w.t.Log(w.log.String())
			}
		})
	}
	return run, start
}

func (w *witness) run(args ...string) {
	w.t.Helper()
	_, start := w.program(context.Background(), append([]string{"run", "--drain-timeout=0s"}, args...)...)
	start()
	find(w.t, &w.log, `msg="serving `)
}

// ask is what the running proxy says.
func (w *witness) ask(protocol, to, from string) explain.Answer {
	w.t.Helper()
	q, err := explain.Parse(protocol, to, from)
	require.NoError(w.t, err)
	body, err := w.bed.Node.Get(w.t.Context(), "http://127.0.0.1:10249/explain?"+q.Values().Encode())
	require.NoError(w.t, err)
	var a explain.Answer
	require.NoError(w.t, json.Unmarshal([]byte(body), &a), body)
	return a
}

// command says the same as ask, and its code.
func (w *witness) command(protocol, to string, want explain.Answer) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	run, _ := w.program(ctx, "explain", protocol, to, "-o", "json")
	code, out := run()
	var a explain.Answer
	require.NoError(w.t, json.Unmarshal([]byte(out), &a), out)
	assert.Equal(w.t, want, a)
	codes := map[explain.Verdict]int{explain.Served: 0, explain.Refused: 3, explain.Dropped: 4, explain.Elsewhere: 5}
	assert.Equal(w.t, codes[want.Verdict], code, out)
}

// met is what a client meets: the name of who answers, or why nobody does.
func met(ctx context.Context, host *nettest.Host, protocol, to string) (string, error) {
	if protocol == "tcp" {
		return host.ReadBanner(ctx, to)
	}
	answer, err := host.ExchangeUDP(ctx, to, "hello")
	return strings.TrimSuffix(answer, " hello"), err
}

// check asks what would become of a packet, sends one, and compares.
func (w *witness) check(from *nettest.Host, protocol, to string, want explain.Verdict) explain.Answer {
	w.t.Helper()
	client := clientAddress(w.t, from, to)
	a := w.ask(protocol, to, client)
	assert.Equal(w.t, want, a.Verdict, "%s %s: %+v", protocol, to, a)
	assert.True(w.t, a.Live)
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	if want == explain.Elsewhere { // it may go to nobody who answers
		ctx, cancel = context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
	}
	answer, err := met(ctx, from, protocol, to)
	switch a.Verdict {
	case explain.Served:
		require.NoError(w.t, err, "%s %s from %s", protocol, to, from.Name)
		assert.Equal(w.t, a.Endpoint.String(), answer, "%s %s from %s", protocol, to, from.Name)
	case explain.Refused:
		assert.ErrorIs(w.t, err, syscall.ECONNREFUSED, "%s %s from %s", protocol, to, from.Name)
		assert.NotEmpty(w.t, a.Advice)
	case explain.Elsewhere:
		assert.NotContains(w.t, answer, ":8080", "no backend of ours: %s %s from %s", protocol, to, from.Name)
		assert.NotEmpty(w.t, a.Advice)
	}
	return a
}

// clientAddress is the address that the proxy sees of a host that asks.
func clientAddress(t *testing.T, from *nettest.Host, to string) string {
	t.Helper()
	conn, err := from.Dial(t.Context(), "udp", to)
	require.NoError(t, err)
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap().String()
}

// TestExplain_comesTrue: for each portal, what explain says is what a real
// client then meets, from a neighbour, a pod and the node itself.
func TestExplain_comesTrue(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft", "iptables", "ip")
	for _, redirect := range []string{redirectNFTables, redirectIPTables, redirectNone} {
		t.Run(redirect, func(t *testing.T) {
			t.Parallel()
			w := newWitness(t, redirect)
			for _, tt := range []struct {
				protocol, to string
				want         explain.Verdict
			}{
				{"tcp", "10.96.0.1:80", explain.Served},
				{"tcp", "[fd96::1]:80", explain.Served},
				{"udp", "10.96.0.2:53", explain.Served},
				{"udp", "[fd96::2]:53", explain.Served},
				{"tcp", "10.96.0.3:80", explain.Refused},
				{"tcp", "[fd96::3]:80", explain.Refused},
				{"udp", "10.96.0.4:53", explain.Refused},
				{"tcp", "10.96.0.5:80", explain.Refused},
				{"tcp", "10.96.0.6:80", explain.Served},
				{"tcp", "10.96.0.7:80", explain.Served},
				{"tcp", "10.10.2.1:30080", explain.Served},
				{"tcp", "10.10.1.1:30080", explain.Elsewhere}, // a node port, and not on this address
				{"tcp", "203.0.113.1:80", explain.Served},
				{"tcp", "10.10.1.1:2222", explain.Elsewhere}, // another program's
				{"tcp", "10.96.0.12:2222", explain.Served},
				{"tcp", "10.96.0.99:80", explain.Elsewhere},
				{"udp", "10.96.0.1:80", explain.Elsewhere}, // the other protocol
			} {
				w.command(tt.protocol, tt.to, w.ask(tt.protocol, tt.to, ""))
				for range 3 { // the turn goes round
					for _, from := range []*nettest.Host{w.bed.Client, w.bed.Pod, w.bed.Node} {
						w.check(from, tt.protocol, tt.to, tt.want)
					}
					if tt.want == explain.Elsewhere {
						break
					}
				}
			}
			w.sticks()
			w.rests()
			if redirect != redirectNone {
				w.counts()
				w.guards()
			}
		})
	}
}

// sticks: a client's affinity is told, and followed.
func (w *witness) sticks() {
	w.t.Helper()
	first := w.check(w.bed.Client, "tcp", "10.96.0.7:80", explain.Served)
	for range 3 {
		w.check(w.bed.Pod, "tcp", "10.96.0.7:80", explain.Served)
		again := w.check(w.bed.Client, "tcp", "10.96.0.7:80", explain.Served)
		assert.Equal(w.t, first.Endpoint, again.Endpoint)
		assert.Contains(w.t, stepOf(again, "affinity"), "10.10.1.2 went to "+first.Endpoint.String())
	}
}

// rests: an endpoint that has refused is passed over while it rests, and says so.
func (w *witness) rests() {
	w.t.Helper()
	const there = "10.10.2.3:8080" // and nobody is at 10.10.2.9
	var a explain.Answer
	require.Eventually(w.t, func() bool { // a rest may be over by the time of the question
		answer, err := w.bed.Client.ReadBanner(w.t.Context(), "10.96.0.8:80")
		require.NoError(w.t, err)
		assert.Equal(w.t, there, answer)
		a = w.ask("tcp", "10.96.0.8:80", "10.10.1.2")
		return strings.Contains(endpointsOfStep(a)[1].Why, "rests for ")
	}, patience, time.Millisecond)
	assert.Equal(w.t, there, a.Endpoint.String())
	assert.Regexp(w.t, `^rests for \d+s after (a failed dial|\d+ failed dials)$`, endpointsOfStep(a)[1].Why)
	answer, err := w.bed.Client.ReadBanner(w.t.Context(), "10.96.0.8:80")
	require.NoError(w.t, err)
	assert.Equal(w.t, there, answer)

	// Where all rest they are picked all the same, and refuse.
	_, err = w.bed.Client.ReadBanner(w.t.Context(), "10.96.0.9:80")
	assert.True(w.t, errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.ECONNREFUSED), "%v", err)
	a = w.ask("tcp", "10.96.0.9:80", "10.10.1.2")
	assert.Equal(w.t, "10.10.2.9:8080", a.Endpoint.String())
}

// counts: the rule's counter is the kernel's.
func (w *witness) counts() {
	w.t.Helper()
	counted := func() string { return stepOf(w.ask("tcp", "203.0.113.1:80", ""), "rule") }
	require.Eventually(w.t, func() bool {
		return strings.Contains(counted(), "; 9 connections have come by this rule since it was made")
	},
		patience, 100*time.Millisecond, "nine have come: %s", counted())
}

// guards: the listener itself refuses who comes past the portal.
func (w *witness) guards() {
	w.t.Helper()
	listener := strings.Fields(stepOf(w.ask("tcp", "10.96.0.1:80", ""), "listener"))[0]
	a := w.check(w.bed.Node, "tcp", listener, explain.Refused)
	assert.Equal(w.t, []string{"ask for 10.96.0.1:80, which leads there for default/served:main"}, a.Advice)
}

func endpointsOfStep(a explain.Answer) []explain.Endpoint { return a.Steps[len(a.Steps)-2].Endpoints }

func stepOf(a explain.Answer, name string) string {
	for _, s := range a.Steps {
		if s.Name == name {
			return s.Text
		}
	}
	return ""
}
