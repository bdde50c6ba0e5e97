package file

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestNew_unreadable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, aService("web", "10.96.0.1"), dir, "a.yaml")
	locked := filepath.Join(dir, "locked")
	require.NoError(t, os.Mkdir(locked, 0o700))
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755)) // what is above may be passed by all
	require.NoError(t, os.Chmod(file, 0))
	require.NoError(t, os.Chmod(locked, 0))
	var err error
	asNobody(t, func() {
		_, err = New("file", Options{Paths: []string{file, locked}})
	})
	require.EqualError(t, err, locked+": may not be read (give the proxy's user the right to read it)\n"+
		file+": may not be read (give the proxy's user the right to read it)")
}

// asNobody runs f without root's power over files. It takes a thread of its
// own, which ends with it.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocks: the thread ends
		if os.Geteuid() == 0 {
			const nobody = 65534
			_, _ = unix.SetfsuidRetUid(nobody)
		}
		f()
	}()
	<-done
}

func TestSource_notARegularFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe.yaml")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	const why = "is a named pipe, no regular file (give a file or a directory, or - for standard input)"
	for _, path := range []string{dir, pipe} {
		_, err := New("file", Options{Paths: []string{path}})
		require.EqualError(t, err, pipe+": "+why)
	}
	_, err := New("file", Options{Paths: []string{"/dev/null"}})
	require.EqualError(t, err, "/dev/null: is a device, no regular file (give a file or a directory, or - for standard input)")

	require.NoError(t, os.Remove(pipe))
	write(t, aService("web", "10.96.0.1"), dir, "a.yaml")
	f := start(t, never, dir)
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	f.shows(t, "default/web 10.96.0.1", "FileUnreadable: file "+pipe+": "+why, "error: "+pipe+": "+why)
}

// TestRead_pipe: one that takes a file's place between the look at it and its opening
// is not waited for.
func TestRead_pipe(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe.yaml")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	done := make(chan error, 1)
	go func() {
		_, _, err := read(pipe)
		done <- err
	}()
	select {
	case err := <-done:
		require.EqualError(t, err, "is a named pipe, no regular file")
	case <-time.After(time.Minute):
		writer, err := os.OpenFile(pipe, os.O_WRONLY, 0) // lets it go
		require.NoError(t, err)
		require.NoError(t, writer.Close())
		t.Fatal("a pipe without a writer is waited for")
	}
	_, _, err := read("/dev/null")
	require.EqualError(t, err, "is a device, no regular file")
}

// TestSource_irregular: what is no file is told, and what stands beside it is served.
func TestSource_irregular(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, aService("web", "10.96.0.1"), dir, "a.yaml")
	f := start(t, 5*time.Millisecond, dir)
	socket, err := net.Listen("unix", filepath.Join(dir, "b.yaml"))
	require.NoError(t, err)
	defer socket.Close()
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "c.yaml"), 0o600))
	require.NoError(t, os.Symlink("/dev/zero", filepath.Join(dir, "d.yaml")))
	replace(t, aService("web", "10.96.0.2"), dir, "a.yaml")
	why := func(name, kind string) string {
		return filepath.Join(dir, name) + ": is " + kind + ", no regular file (give a file or a directory, or - for standard input)"
	}
	b, c, d := why("b.yaml", "a socket"), why("c.yaml", "a named pipe"), why("d.yaml", "a device")
	f.shows(t, "default/web 10.96.0.2", "FileUnreadable: file "+b, "FileUnreadable: file "+c, "FileUnreadable: file "+d, "error: "+b+"\n"+c+"\n"+d)
}

// TestSource_withoutInotify runs itself in a user namespace whose own limits
// for inotify are used up, and sees that files are polled and that it is said
// once. The limits in /proc/sys/user are the namespace's; those in
// /proc/sys/fs/inotify would be the whole machine's.
func TestSource_withoutInotify(t *testing.T) {
	const variable = "FILE_TEST_INOTIFY_LIMIT"
	limits := map[string]string{
		"max_inotify_instances": "; raise fs.inotify.max_user_instances or the limit of open files",
		"max_inotify_watches":   "; raise fs.inotify.max_user_watches",
	}
	limit := os.Getenv(variable)
	if limit == "" {
		for limit := range limits {
			inUserNamespace(t, variable+"="+limit)
		}
		return
	}
	users, err := os.ReadFile("/proc/self/uid_map")
	require.NoError(t, err)
	require.Equal(t, "1", strings.Fields(string(users))[2], "this is a namespace of our own, with one user")
	require.NoError(t, os.WriteFile("/proc/sys/user/"+limit, []byte("0"), 0))
	if limit == "max_inotify_watches" {
		require.Eventually(t, func() bool { // others may hold all instances for the moment
			w, err := fsnotify.NewWatcher()
			if err != nil {
				return false
			}
			assert.ErrorIs(t, w.Add("/"), syscall.ENOSPC, "the limit holds")
			return assert.NoError(t, w.Close())
		}, time.Minute, 100*time.Millisecond)
	}
	dir := t.TempDir()
	write(t, aService("web", "10.96.0.1"), dir, "a.yaml")
	f := start(t, 5*time.Millisecond, dir)
	f.stays(t, "default/web 10.96.0.1")
	replace(t, aService("web", "10.96.0.2"), dir, "a.yaml")
	f.shows(t, "default/web 10.96.0.2")
	require.Len(t, f.logs.AllEntries(), 1)
	assert.Equal(t, "files with Services cannot be watched and are looked at now and then instead"+limits[limit],
		f.logs.LastEntry().Message)

	// When watches can be made again, that is said and used.
	require.NoError(t, os.WriteFile("/proc/sys/user/"+limit, []byte("100"), 0))
	require.Eventually(t, func() bool { return len(f.logs.AllEntries()) == 2 }, time.Minute, time.Millisecond)
	assert.Equal(t, "files with Services are watched again", f.logs.LastEntry().Message)
}

// inUserNamespace runs the calling test again, as root of a new user namespace.
func inUserNamespace(t *testing.T, variable string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), variable)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "--- PASS: "+t.Name())
}

// TestReadAll_silence reads what looked like a file and never says anything, as
// /proc/kmsg does: others are waiting to be read, and so is the end.
func TestReadAll_silence(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	held, err := os.OpenFile(pipe, os.O_RDWR, 0) // it is its own writer, and says nothing
	require.NoError(t, err)
	defer held.Close()
	_, _, err = readAll(held)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}
