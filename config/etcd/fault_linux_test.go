package etcd

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSource_serverHangs: its connections stay, and nothing comes.
func TestSource_serverHangs(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.put(serviceKey("web"), aService("web", "10.96.0.1"))
	f := s.source()
	f.shows(t, "Service default/web 10.96.0.1")
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGSTOP))
	f.fails(t, "no answer in time")
	age := f.info().Checked
	f.shows(t, "Service default/web 10.96.0.1")
	// Until the connection is given up as well.
	require.Eventually(t, func() bool { return !strings.Contains(f.info().Err, "no answer in time") }, time.Minute, time.Millisecond)
	assert.Equal(t, age, f.info().Checked)
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGCONT))
	s.put(serviceKey("web"), aService("web", "10.96.0.2"))
	f.shows(t, "Service default/web 10.96.0.2")
	f.recovers(t)
	assert.Equal(t, 1, f.logged("cannot be read"), f.messages())
}
