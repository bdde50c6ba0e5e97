package takeover_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/internal/takeover"
)

// state is what is handed over.
type state struct{ Known []string }

// nameOf is a name that no other test has.
func nameOf(t *testing.T) string { return strings.ReplaceAll(t.Name(), "/", "-") }

func take(t *testing.T, name string) *takeover.Hold {
	t.Helper()
	h, err := takeover.Take(name)
	require.NoError(t, err)
	t.Cleanup(h.Release)
	return h
}

// takenOver is what a TakeOver that was begun came to.
type takenOver struct {
	hold *takeover.Hold
	from *takeover.Predecessor
	err  error
	state
}

func takeOver(ctx context.Context, name string) <-chan takenOver {
	done := make(chan takenOver, 1)
	go func() {
		var r takenOver
		r.hold, r.from, r.err = takeover.TakeOver(ctx, name)
		if r.from != nil {
			r.err = errors.Join(r.err, json.Unmarshal(r.from.State, &r.state))
		}
		done <- r
	}()
	return done
}

func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(nettest.Patience):
		require.Fail(t, "waited in vain")
		panic("unreachable")
	}
}

func successor(t *testing.T, h *takeover.Hold) *takeover.Successor {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), nettest.Patience)
	defer cancel()
	s, err := h.Successor(ctx)
	require.NoError(t, err)
	require.NotNil(t, s, "nobody asked")
	return s
}

func regain(s *takeover.Successor) <-chan error {
	done := make(chan error, 1)
	go func() { done <- s.Regain(context.Background()) }()
	return done
}

func TestTake_onlyOneHasTheName(t *testing.T) {
	t.Parallel()
	h := take(t, nameOf(t))
	_, err := takeover.Take(nameOf(t))
	var taken *takeover.TakenError
	require.ErrorAs(t, err, &taken)
	assert.Equal(t, &takeover.TakenError{Name: nameOf(t), Process: os.Getpid()}, taken)
	take(t, nameOf(t)+"-other")
	h.Release()
	take(t, nameOf(t))
}

func TestTakeOver_fromNobody(t *testing.T) {
	t.Parallel()
	r := receive(t, takeOver(t.Context(), nameOf(t)))
	require.NoError(t, r.err)
	assert.Nil(t, r.from)
	assert.Empty(t, r.Known)
	r.hold.Release()
}

// One after the other takes over. The first has the name again when all that came
// after it are gone, and not before.
func TestTakeOver_oneAfterTheOther(t *testing.T) {
	t.Parallel()
	first := take(t, nameOf(t))
	asked := takeOver(t.Context(), nameOf(t))
	s := successor(t, first)
	assert.Equal(t, os.Getpid(), s.Process)
	require.NoError(t, s.Yield(state{[]string{"one", "two"}}))
	second := receive(t, asked)
	require.NoError(t, second.err)
	assert.Equal(t, os.Getpid(), second.from.Process)
	assert.Equal(t, []string{"one", "two"}, second.Known)
	firstAgain := regain(s)
	second.hold.Serving()

	asked = takeOver(t.Context(), nameOf(t))
	s = successor(t, second.hold)
	require.NoError(t, s.Yield(nil))
	third := receive(t, asked)
	require.NoError(t, third.err)
	assert.Empty(t, third.Known)
	// The second is to end. It does when the third serves.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	secondEnds := make(chan error, 1)
	go func() { secondEnds <- s.Regain(ctx) }()
	select {
	case err := <-secondEnds:
		require.Fail(t, "the third does not serve yet", "%v", err)
	case <-time.After(100 * time.Millisecond):
	}
	third.hold.Serving()
	require.ErrorIs(t, receive(t, secondEnds), context.Canceled)
	select {
	case err := <-firstAgain:
		require.Fail(t, "the third has the name", "%v", err)
	case <-time.After(2 * time.Second): // two looks
	}
	third.hold.Release()
	require.NoError(t, receive(t, firstAgain))
	_, err := takeover.Take(nameOf(t))
	require.ErrorAs(t, err, new(*takeover.TakenError))
}

func TestRegain_whoAskedIsGone(t *testing.T) {
	t.Parallel()
	h := take(t, nameOf(t))
	ctx, cancel := context.WithCancel(t.Context())
	asked := takeOver(ctx, nameOf(t))
	s := successor(t, h)
	cancel()
	r := receive(t, asked)
	require.ErrorIs(t, r.err, context.Canceled, "before it is told")
	_ = s.Yield(nil) // may fail, and need not: the other end is closed
	require.NoError(t, receive(t, regain(s)))

	asked = takeOver(t.Context(), nameOf(t))
	s = successor(t, h)
	require.NoError(t, s.Yield(nil))
	r = receive(t, asked)
	require.NoError(t, r.err)
	r.hold.Release() // as its end does
	require.NoError(t, receive(t, regain(s)), "before it serves")

	asked = takeOver(t.Context(), nameOf(t))
	s = successor(t, h)
	require.NoError(t, s.Yield(nil))
	r = receive(t, asked)
	require.NoError(t, r.err)
	again := regain(s)
	r.hold.Serving()
	r.hold.Release()
	require.NoError(t, receive(t, again), "when it serves")
}

// Who has the name ends, or yields to another, while it is asked.
func TestTakeOver_whoIsAskedGoes(t *testing.T) {
	t.Parallel()
	h := take(t, nameOf(t))
	one := takeOver(t.Context(), nameOf(t))
	s := successor(t, h)
	two := takeOver(t.Context(), nameOf(t)) // it waits in the queue
	time.Sleep(100 * time.Millisecond)
	require.NoError(t, s.Yield(state{[]string{"known"}}))
	r := receive(t, one)
	require.NoError(t, r.err)
	require.Equal(t, []string{"known"}, r.Known)
	time.Sleep(200 * time.Millisecond) // the second waits in the queue of the first, which ends
	r.hold.Release()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Regain(context.Background()) // whoever of the two is faster
	}()
	select {
	case r = <-two:
		require.NoError(t, r.err)
	case <-done:
		s = successor(t, h)
		require.NoError(t, s.Yield(nil))
		r = receive(t, two)
		require.NoError(t, r.err)
	}
	r.hold.Release()
	receive(t, done)
}

func TestTakeOver_endsWithItsContext(t *testing.T) {
	t.Parallel()
	take(t, nameOf(t)) // which never yields
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	r := receive(t, takeOver(ctx, nameOf(t)))
	require.ErrorIs(t, r.err, context.DeadlineExceeded)
}

// Somebody has bound the name and does not listen, which no process of ours does.
func TestTake_nobodyAnswers(t *testing.T) {
	t.Parallel()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd) //nolint:errcheck // nothing was sent
	require.NoError(t, unix.Bind(fd, &unix.SockaddrUnix{Name: "@" + nameOf(t)}))
	for _, get := range []func() error{
		func() error { _, err := takeover.Take(nameOf(t)); return err },
		func() error { return receive(t, takeOver(t.Context(), nameOf(t))).err },
	} {
		var taken *takeover.TakenError
		err := get()
		require.ErrorAs(t, err, &taken)
		assert.True(t, taken.Stranger)
		assert.EqualError(t, err, "another process that does not answer has the name "+nameOf(t))
	}
}

func TestSuccessor_endsWithItsContext(t *testing.T) {
	t.Parallel()
	h := take(t, nameOf(t))
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		s, err := h.Successor(ctx)
		require.NoError(t, err)
		assert.Nil(t, s)
		cancel()
	}
	asked := takeOver(t.Context(), nameOf(t))
	require.NoError(t, successor(t, h).Yield(nil))
	r := receive(t, asked)
	require.NoError(t, r.err)
	r.hold.Release()
}

// Who connects and asks for nothing, or for something else, has no effect.
func TestSuccessor_whoDoesNotAsk(t *testing.T) {
	t.Parallel()
	h := take(t, nameOf(t))
	for _, what := range []string{"", "\n", "take over", "TAKE OVER\n", strings.Repeat("x", 1<<16)} {
		c, err := net.Dial("unix", "@"+nameOf(t))
		require.NoError(t, err)
		_, err = c.Write([]byte(what))
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
	silent, err := net.Dial("unix", "@"+nameOf(t)) // it says nothing, and stays for longer than it may
	require.NoError(t, err)
	defer silent.Close()
	asked := takeOver(t.Context(), nameOf(t))
	s := successor(t, h)
	require.NoError(t, s.Yield(nil))
	r := receive(t, asked)
	require.NoError(t, r.err)
	r.hold.Release()
}

// What another user's process has is not asked for, and what it asks is not heard.
func TestStrangers(t *testing.T) {
	if role := os.Getenv("TAKEOVER_ROLE"); role != "" {
		stranger(t, role, os.Getenv("TAKEOVER_NAME"))
		return
	}
	t.Parallel()
	nettest.Need(t) // root, to start a process as another user
	t.Run("has the name", func(t *testing.T) {
		t.Parallel()
		begin(t, "holder", nameOf(t))
		for _, get := range []func() error{
			func() error { _, err := takeover.Take(nameOf(t)); return err },
			func() error { _, _, err := takeover.TakeOver(t.Context(), nameOf(t)); return err },
		} {
			err := get()
			var taken *takeover.TakenError
			require.ErrorAs(t, err, &taken)
			assert.True(t, taken.Stranger)
			assert.Equal(t, 65534, taken.User)
			assert.ErrorContains(t, err, "of user 65534 has the name")
		}
	})
	t.Run("asks", func(t *testing.T) {
		t.Parallel()
		h := take(t, nameOf(t))
		begin(t, "asker", nameOf(t))
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		s, err := h.Successor(ctx)
		require.NoError(t, err)
		assert.Nil(t, s)
	})
}

// begin runs a stranger of that role until the test ends, and returns when it is
// one.
func begin(t *testing.T, role, name string) {
	t.Helper()
	self, err := os.Open("/proc/self/exe") // the file itself is where others may not look
	require.NoError(t, err)
	defer self.Close()
	cmd := exec.Command("/proc/self/fd/3", "-test.run=^TestStrangers$")
	cmd.ExtraFiles = []*os.File{self}
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "TAKEOVER_ROLE="+role, "TAKEOVER_NAME="+name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)
}

func stranger(t *testing.T, role, name string) {
	t.Helper()
	switch role {
	case "holder":
		take(t, name)
	case "asker":
		c, err := net.Dial("unix", "@"+name)
		require.NoError(t, err)
		defer c.Close()
		_, err = c.Write([]byte("take over\n"))
		require.NoError(t, err)
	}
	_, _ = os.Stdout.WriteString("ready\n")
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the test ends
}
