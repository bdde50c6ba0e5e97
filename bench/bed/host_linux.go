package bed

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Host is one host: a network namespace, and a thread in it. Its methods may be
// called by several goroutines, one call at a time is done.
type Host struct {
	Name  string
	calls chan func()
	done  chan struct{}
	ns    *os.File // the namespace
}

func newHost(name string) (*Host, error) {
	h := &Host{Name: name, calls: make(chan func()), done: make(chan struct{})}
	failed := make(chan error)
	go h.live(failed)
	if err := <-failed; err != nil {
		<-h.done
		return nil, fmt.Errorf("making a network namespace for %s (needs root, CAP_SYS_ADMIN, and a kernel with CONFIG_NET_NS): %w", name, err)
	}
	return h, nil
}

// live is the host's thread. It is never unlocked, so it dies with the
// goroutine and no other ever runs on it.
func (h *Host) live(failed chan<- error) {
	defer close(h.done)
	runtime.LockOSThread()
	err := unix.Unshare(unix.CLONE_NEWNET)
	if err == nil {
		h.ns, err = os.Open("/proc/thread-self/ns/net")
	}
	failed <- err
	if err != nil {
		return
	}
	for call := range h.calls {
		call()
	}
	_ = h.ns.Close()
}

func (h *Host) close() {
	close(h.calls)
	<-h.done
}

// Do runs fn on the host's thread: sockets that it opens are the host's, and so
// is what it finds in /proc/thread-self/net and /proc/sys/net. What goroutines
// of fn do happens elsewhere. It must not be called inside fn.
func (h *Host) Do(fn func() error) error {
	var err error
	done := make(chan struct{})
	h.calls <- func() { defer close(done); err = fn() }
	<-done
	return err
}

// Start starts a command on the host, with all that it starts in turn in a
// process namespace of their own: when the command ends or is killed, they are
// too. The caller waits for it.
func (h *Host) Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL, // at the end of the thread that starts it
		Setpgid:    true,            // Ctrl-C is for this process, which ends the others
	}
	if err := h.Do(cmd.Start); err != nil {
		return fmt.Errorf("starting %s on %s: %w", cmd.Path, h.Name, err)
	}
	return nil
}

// Run runs a command on the host to its end. An error has what it printed.
func (h *Host) Run(cmd *exec.Cmd) error {
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := h.Start(cmd); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s on %s: %w\n%s", strings.Join(cmd.Args, " "), h.Name, err, out.String())
	}
	return nil
}

// sysctl sets a kernel parameter of the host, "net/ipv4/ip_forward".
func (h *Host) sysctl(name, value string) error {
	return h.Do(func() error {
		if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0); err != nil {
			return fmt.Errorf("setting %s on %s: %w", name, h.Name, err)
		}
		return nil
	})
}
