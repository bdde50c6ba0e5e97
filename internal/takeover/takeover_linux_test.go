package takeover_test

import (
	"bufio"
	"context"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
	from *takeover.Peer
	err  error
	state
}

func takeOver(ctx context.Context, name string) <-chan takenOver {
	done := make(chan takenOver, 1)
	go func() {
		var r takenOver
		r.hold, r.from, r.err = takeover.TakeOver(ctx, name, &r.state)
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
	assert.Equal(t, &takeover.Peer{Process: os.Getpid()}, second.from)
	assert.Equal(t, []string{"one", "two"}, second.Known)
	firstAgain := regain(s)

	asked = takeOver(t.Context(), nameOf(t))
	s = successor(t, second.hold)
	require.NoError(t, s.Yield(nil))
	third := receive(t, asked)
	require.NoError(t, third.err)
	assert.Empty(t, third.Known)
	// The second has ended, with its connection to the third.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.Regain(ctx), context.Canceled)
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
	for _, after := range []string{"before it is told", "as it is told"} {
		ctx, cancel := context.WithCancel(t.Context())
		asked := takeOver(ctx, nameOf(t))
		s := successor(t, h)
		cancel()
		r := receive(t, asked)
		require.Error(t, r.err, after)
		_ = s.Yield(nil) // may fail, and need not: the other end is closed
		require.NoError(t, receive(t, regain(s)), after)
	}
}

func TestTakeOver_endsWithItsContext(t *testing.T) {
	t.Parallel()
	take(t, nameOf(t)) // which never yields
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	r := receive(t, takeOver(ctx, nameOf(t)))
	require.ErrorContains(t, r.err, "does not yield")
	require.ErrorAs(t, r.err, new(*takeover.TakenError))
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
	if os.Geteuid() != 0 {
		t.Skip("it starts a process as another user, which needs root")
	}
	t.Run("has the name", func(t *testing.T) {
		t.Parallel()
		begin(t, "holder", nameOf(t))
		for _, get := range []func() error{
			func() error { _, err := takeover.Take(nameOf(t)); return err },
			func() error { _, _, err := takeover.TakeOver(t.Context(), nameOf(t), nil); return err },
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
