package nettest

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// isolated names the namespace into which Isolate has put this process.
const isolated = "NETTEST_ISOLATED"

// Isolate puts the whole test process, with every goroutine it will have, into
// a network namespace of its own. It is the first thing that a TestMain calls:
// it executes the test binary again, once, and does not return the first time.
//
// Where the process lacks the right (it is not root) Isolate does nothing, so
// that tests that need no Bed run; NewHere then says what is missing.
func Isolate() {
	if os.Geteuid() != 0 || os.Getenv(isolated) != "" {
		return
	}
	if err := isolate(); err != nil {
		fmt.Fprintf(os.Stderr, "nettest: putting the tests into a network namespace: %v\n", err)
		os.Exit(1)
	}
}

// isolate makes a namespace on this thread and executes the process anew from
// it: the kernel ends the other threads and this one's namespace becomes the
// process's.
func isolate() error {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo) // tests without a bed use loopback
	}
	if err != nil {
		return err
	}
	name, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return unix.Exec(self, os.Args, append(os.Environ(), isolated+"="+name))
}

// NewHere is New with the namespace of the test process itself as the node,
// for code whose goroutines open sockets. The package's TestMain must have
// called Isolate. Tests that use it cannot run in parallel with each other; what
// they add to the node beside the Bed (rules, addresses on lo) is theirs to
// remove.
func NewHere(t testing.TB) *Bed {
	t.Helper()
	Need(t, "nsenter")
	name, err := os.Readlink("/proc/self/ns/net")
	require.NoError(t, err)
	if os.Getenv(isolated) != name {
		t.Fatal("NewHere changes the network of this process: call nettest.Isolate first in TestMain")
	}
	ns, err := netns.Get()
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := errors.Join(removeLinks(), ns.Close()); err != nil {
			t.Errorf("taking the bed down: %v", err)
		}
	})
	return lay(t, &Host{Name: "node", ns: ns})
}

// removeLinks removes the interfaces of the bed from this process's namespace,
// and with them the addresses and routes, so that the next test can lay its own.
// The other hosts have ended by then, and the kernel takes their ends of the
// links down at the same time, which may be first.
func removeLinks() error {
	var errs error
	for _, name := range []string{NodeToClient, NodeToBack, NodeToPod} {
		l, err := netlink.LinkByName(name)
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			continue
		}
		if err == nil {
			err = netlink.LinkDel(l)
		}
		if errors.Is(err, unix.ENODEV) {
			continue // it went with its peer's namespace meanwhile
		}
		errs = errors.Join(errs, err)
	}
	return errs
}
