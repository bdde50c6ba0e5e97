//go:build linux && !portable

package iptables

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// pretend puts scripts before the commands. A script reads the input of
// iptables-restore and fails, with what the real one says, where the input has
// a word; $word and $input may be used by more. The test cannot run in
// parallel with others.
func pretend(t *testing.T, k Kind, f service.Family, word, says string) {
	t.Helper()
	nettest.Need(t, "sh", "grep", "cat", k.Command(f))
	name := k.Command(f) + "-restore"
	path, err := exec.LookPath(name)
	require.NoError(t, err)
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\ninput=$(cat)\nif printf '%%s\\n' \"$input\" | grep -q -e '%s'; then echo \"%s\" >&2; exit 2; fi\n"+
		"printf '%%s\\n' \"$input\" | %s \"$@\"\n", word, says, path)
	require.NoError(t, os.WriteFile(dir+"/"+name, []byte(script), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// Probe makes and removes rules of its own, with each kind, and leaves
// nothing. With the kind System it takes what works.
func TestCase34_ProbeReallyTriesAndLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, k := range []Kind{System, NFT, Legacy} {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, NFT)
			w.config.Kind = k
			before := w.dump(t)
			w.Node.Do(t, func() {
				got, err := Probe(t.Context(), w.config)
				require.NoError(t, err)
				assert.Equal(t, k, got.Kind)
				assert.Equal(t, service.Families(), got.Families)
				assert.Empty(t, got.Missing)
				assert.Regexp(t, `^iptables v\d+\.\d+\.\d+ \((nf_tables|legacy)\)$`, got.Version)
			})
			assert.Equal(t, before, w.dump(t))
		})
	}
}

// The kubelet says what kind the node uses; ours must be the same, or on old
// kernels the tables nat would be in each other's way.
func TestCase34_ProbeTakesTheKindOfTheKubelet(t *testing.T) {
	eachKind(t, func(t *testing.T, k Kind) {
		for _, mark := range []string{"KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"} {
			w := newWorld(t, k)
			w.config.Kind = System
			w.Node.Output(t, k.Command(service.IPv4), "--wait", "-t", "mangle", "-N", mark)
			w.Node.Do(t, func() {
				got, err := Probe(t.Context(), w.config)
				require.NoError(t, err)
				assert.Equal(t, k, got.Kind)
			})
		}
	})
}

// A module that the kernel lacks is named. The kernel of this machine has all,
// so the command is made to say what it says without.
func TestCase34_MissingModulesAreNamed(t *testing.T) {
	for word, want := range map[string]string{
		"-m comment":   "the match comment (xt_comment): load or build",
		"-m mark":      "the match mark (xt_mark): load or build",
		"-m conntrack": "the match conntrack (xt_conntrack): load or build",
		"-j REJECT":    "the target REJECT (ipt_REJECT): load or build",
		"-j DNAT":      "the target DNAT (xt_nat): load or build",
		"^.nat":        "the table nat (iptable_nat), the match mark (xt_mark), the target DNAT (xt_nat): load or build",
	} {
		t.Run(word, func(t *testing.T) {
			w := newWorld(t, NFT)
			before := w.dump(t)
			pretend(t, NFT, service.IPv4, word, "Warning: Extension revision 0 not supported, missing kernel module?")
			w.Node.Do(t, func() {
				got, err := Probe(t.Context(), w.config)
				require.NoError(t, err, "the other family works")
				assert.Equal(t, []service.Family{service.IPv6}, got.Families)
				assert.ErrorContains(t, got.Missing[service.IPv4], "IPv4: iptables-nft cannot use "+want)
				assert.ErrorContains(t, got.Missing[service.IPv4], "missing kernel module?")
			})
			assert.Equal(t, before, w.dump(t))
		})
	}
}

// Where IPv6 has no table nat the node is served in IPv4, and one line says so.
func TestCase34_IPv6WithoutNATMeansIPv4Only(t *testing.T) {
	for _, k := range []Kind{NFT, Legacy} {
		t.Run(string(k), func(t *testing.T) {
			w := newWorld(t, k)
			pretend(t, k, service.IPv6, "^.nat", "ip6tables v1.8.9 (legacy): can't initialize ip6tables table nat: Table does not exist (do you need to insmod?)")
			w.Node.Do(t, func() {
				got, err := Probe(t.Context(), w.config)
				require.NoError(t, err)
				assert.Equal(t, []service.Family{service.IPv4}, got.Families)
				assert.ErrorContains(t, got.Missing[service.IPv6], "the table nat (ip6table_nat)")
				assert.ErrorContains(t, got.Missing[service.IPv6], "do you need to insmod?")
				delete(w.config.Listen, service.IPv6)
				w.restart(t)
				require.NoError(t, w.runner.Sync(t.Context(), nettest.Mixed()))
				require.NoError(t, w.runner.Check(t.Context()))
			})
		})
	}
}

func TestCase34_MissingRightsAreNamedOnce(t *testing.T) {
	w := newWorld(t, NFT)
	w.config.Kind = System
	for _, k := range []Kind{System, NFT, Legacy} {
		for _, f := range service.Families() {
			pretend(t, k, f, "^.nat", "Could not fetch rule set generation id: Permission denied (you must be root)")
		}
	}
	w.Node.Do(t, func() {
		_, err := Probe(t.Context(), w.config)
		assert.EqualError(t, err, "probing iptables: "+ErrNoRight.Error())
	})
}

// Where one kind does not work the next is taken; where none does, the error
// says why of each.
func TestCase34_ProbeTakesWhatWorks(t *testing.T) {
	w := newWorld(t, Legacy)
	w.config.Kind = System
	const says = "iptables-restore: Could not fetch rule set generation id: Invalid argument"
	for _, f := range service.Families() {
		pretend(t, System, f, "^.nat", says)
		pretend(t, NFT, f, "^.nat", says)
	}
	w.Node.Do(t, func() {
		got, err := Probe(t.Context(), w.config)
		require.NoError(t, err)
		assert.Equal(t, Legacy, got.Kind)
		assert.Contains(t, got.Version, "legacy")
	})
	for _, f := range service.Families() {
		pretend(t, Legacy, f, "^.nat", "iptables-restore: line 2 failed")
	}
	w.Node.Do(t, func() {
		_, err := Probe(t.Context(), w.config)
		for _, part := range []string{
			"probing iptables: ", "IPv4: iptables cannot use the table nat", "IPv6: ip6tables-nft cannot use the table nat",
			"IPv4: iptables-legacy cannot use the table nat", says,
		} {
			assert.ErrorContains(t, err, part)
		}
	})
}
