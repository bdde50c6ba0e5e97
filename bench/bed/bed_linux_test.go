package bed

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestBed: the client reaches every address of back through the node.
func TestBed(t *testing.T) {
	t.Parallel()
	b, err := Lay()
	require.NoError(t, err, "the bed needs root")
	defer b.Close()
	require.NoError(t, b.Node.FlushConntrack())

	var l net.Listener
	require.NoError(t, b.Back.Do(func() (err error) {
		l, err = net.Listen("tcp4", "0.0.0.0:7000")
		return err
	}))
	defer l.Close()
	for _, a := range Endpoints() {
		var c net.Conn
		require.NoError(t, b.Client.Do(func() (err error) {
			c, err = net.DialTimeout("tcp", net.JoinHostPort(a.String(), "7000"), 10*time.Second)
			return err
		}))
		assert.Equal(t, "10.10.1.2", c.LocalAddr().(*net.TCPAddr).IP.String())
		require.NoError(t, c.Close())
	}
}

// TestHost_endsWhatItStarted: a command, and what it started, end with the bed.
func TestHost_endsWhatItStarted(t *testing.T) {
	t.Parallel()
	b, err := Lay()
	require.NoError(t, err, "the bed needs root")
	cmd := exec.CommandContext(context.Background(), "sh", "-c", "sleep 600 & readlink /proc/self/ns/net; wait")
	out, w, err := os.Pipe()
	require.NoError(t, err)
	defer out.Close()
	cmd.Stdout = w
	require.NoError(t, b.Node.Start(cmd))
	require.NoError(t, w.Close())

	mine, err := os.Readlink("/proc/self/ns/net")
	require.NoError(t, err)
	buf := make([]byte, 100)
	n, err := out.Read(buf)
	require.NoError(t, err)
	assert.Contains(t, string(buf[:n]), "net:[")
	assert.NotContains(t, string(buf[:n]), mine, "the command runs on the host")

	b.Close()
	_, err = io.ReadAll(out) // ends when sleep, which has the pipe too, has
	require.NoError(t, err)
	assert.Error(t, cmd.Wait())
}
