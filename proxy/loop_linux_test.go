//go:build linux && !portable

package proxy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Whoever asks for connections when the loops have ended gets none, and does
// not write to a descriptor that was a loop's and is somebody else's now. It
// runs alone, so that no other test takes that number.
func TestAnEndedLoopIsNotRung(t *testing.T) {
	f := start(t, Config{})
	f.stop()
	<-f.done

	var pipe [2]int
	require.NoError(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK))
	opened := pipe[:]
	defer func() {
		for _, fd := range opened {
			assert.NoError(t, unix.Close(fd))
		}
	}()
	for _, l := range f.shared.tcp.loops {
		if l.alarm == pipe[0] || l.alarm == pipe[1] {
			continue
		}
		fd, err := unix.FcntlInt(uintptr(pipe[1]), unix.F_DUPFD_CLOEXEC, l.alarm)
		require.NoError(t, err)
		opened = append(opened, fd)
		require.Equal(t, l.alarm, fd)
	}
	list, open := f.Connections(10)
	assert.Empty(t, list)
	assert.Zero(t, open)
	_, err := unix.Read(pipe[0], make([]byte, 8))
	assert.ErrorIs(t, err, unix.EAGAIN, "nothing was written")
}
