//go:build linux && !portable

package nftables

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// powerless runs fn in the calling thread's namespace on a thread that cannot
// change rules, nor can what it executes.
func powerless(t *testing.T, fn func() error) error {
	t.Helper()
	ns, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { assert.NoError(t, unix.Close(ns)) }()
	got := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine, and its lack of rights too
		err := errors.Join(
			unix.Setns(ns, unix.CLONE_NEWNET),
			unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_NET_ADMIN, 0, 0, 0),
			unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &make([]unix.CapUserData, 2)[0]),
		)
		if err == nil {
			err = fn()
		}
		got <- err
	}()
	select {
	case err := <-got:
		return err
	case <-time.After(nettest.Patience):
		t.Fatal("no answer")
		return nil
	}
}

func TestNoRight(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sync(t, nettest.Mixed())
	before := dump(t, w.Node)
	w.Node.Do(t, func() {
		for what, fn := range map[string]func() error{
			"new":     func() error { _, err := New(dual()); return err },
			"probe":   func() error { _, err := Probe(t.Context(), dual()); return err },
			"cleanup": func() error { return Cleanup(t.Context()) },
			"sync":    func() error { return w.runner.Sync(t.Context(), nil) },
		} {
			err := powerless(t, fn)
			require.ErrorIs(t, err, ErrNoRight, what)
			assert.ErrorContains(t, err, "needs root or CAP_NET_ADMIN", what)
			assert.ErrorContains(t, err, "--redirect=none", what)
		}
	})
	assert.Equal(t, before, dump(t, w.Node))
}

// failing is an nft of a kernel that lacks what a word stands for.
type failing struct {
	knftables.Interface
	word string
}

func (f failing) Run(ctx context.Context, tx *knftables.Transaction) error {
	if strings.Contains(tx.String(), f.word) {
		return errors.New("Error: Could not process rule: Operation not supported\nadd chain …")
	}
	return f.Interface.Run(ctx, tx)
}

func TestProbeOfKernelWithoutOneFamily(t *testing.T) {
	t.Parallel()
	kernel := knftables.NewFake("", "")
	got := families(t.Context(), dual().Defaults(), failing{kernel, "table ip6"})
	assert.Equal(t, []service.Family{service.IPv4}, got.Families)
	require.Len(t, got.Missing, 1)
	assert.EqualError(t, got.Missing[service.IPv6], "probing nftables for IPv6: Error: Could not process rule: Operation not supported\n"+
		"add chain … (the kernel lacks a part of nf_tables: load or build its modules, or use --redirect=none)")
	assert.Empty(t, kernel.Dump())
}

func TestProbeOfKernelWithoutAnything(t *testing.T) {
	t.Parallel()
	got := families(t.Context(), dual().Defaults(), failing{knftables.NewFake("", ""), "map"})
	assert.Empty(t, got.Families)
	assert.Len(t, got.Missing, 2)
}

// An nft that hangs holds a Sync up no longer than its timeout.
func TestTimeoutEndsSync(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/nft", []byte(`#!/bin/sh
case "$1" in
--version) echo "nftables v9.9.9 (Fake)" ;;
--check | list) ;;
*) exec /bin/sleep 1000 ;;
esac
`), 0o700))
	t.Setenv("PATH", dir)
	c := dual()
	c.Timeout = 5 * time.Second // which what does not hang must not need
	r, err := New(c)
	require.NoError(t, err)
	err = r.Sync(t.Context(), nettest.Mixed())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.EqualError(t, err, "syncing nftables rules: nft was ended before it was done: context deadline exceeded")
	report, err := Probe(t.Context(), c)
	assert.Equal(t, "nftables v9.9.9 (Fake)", report.Version)
	assert.ErrorContains(t, err, "probing nftables for IPv4: nft was ended before it was done")
}
