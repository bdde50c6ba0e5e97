package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a real etcd, on a loopback address of its own.
type server struct {
	t      testing.TB
	name   string
	peers  string // the members of its cluster, where it is not alone
	addr   string
	dir    string
	scheme string
	flags  []string
	cmd    *exec.Cmd
	log    *nettest.Output
	client *clientv3.Client // of a user who may do everything
}

// newServer has the address and directory of a server that does not run yet.
func newServer(t testing.TB, flags ...string) *server {
	t.Helper()
	return &server{
		t: t, name: "a", dir: t.TempDir(), scheme: "http", flags: flags,
		addr: fmt.Sprintf("127.%d.%d.%d", 65+rand.IntN(60), rand.IntN(250), 1+rand.IntN(250)),
	}
}

// startServer runs one until the test ends.
func startServer(t testing.TB, flags ...string) *server {
	t.Helper()
	s := newServer(t, flags...)
	s.start()
	s.connect(clientv3.Config{})
	return s
}

func (s *server) url() string { return s.scheme + "://" + s.addr + ":2379" }

// binary is etcd, which is built once for all tests.
func binary(t testing.TB) string {
	t.Helper()
	name, err := filepath.Abs("../../bin/etcd")
	require.NoError(t, err)
	_, err = os.Stat(name)
	require.NoError(t, err, "these tests need an etcd: run scripts/controlplane.sh once")
	return name
}

// start starts the server and waits until it says that it serves.
func (s *server) start() {
	s.t.Helper()
	s.begin()
	deadline := time.Now().Add(time.Minute)
	for !strings.Contains(s.log.String(), "ready to serve client requests") {
		require.True(s.t, time.Now().Before(deadline), s.log)
		time.Sleep(5 * time.Millisecond)
	}
}

func (s *server) peer() string { return "http://" + s.addr + ":2380" }

// begin starts the server.
func (s *server) begin() {
	s.t.Helper()
	s.log = &nettest.Output{}
	s.cmd = exec.Command(binary(s.t), append([]string{
		"--name=" + s.name, "--data-dir=" + s.dir, "--log-level=info", "--unsafe-no-fsync",
		"--listen-client-urls=" + s.url(), "--advertise-client-urls=" + s.url(),
		"--listen-peer-urls=" + s.peer(), "--initial-advertise-peer-urls=" + s.peer(), "--initial-cluster=" + cmp.Or(s.peers, s.name+"="+s.peer()),
		"--heartbeat-interval=20", "--election-timeout=200",
	}, s.flags...)...)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	require.NoError(s.t, s.cmd.Start())
	s.t.Cleanup(s.kill)
}

// kill ends the server as a power failure would.
func (s *server) kill() {
	if s.cmd.ProcessState == nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait() // says that it was killed
	}
}

// connect makes the client for what tests do to the server.
func (s *server) connect(c clientv3.Config) {
	s.t.Helper()
	c.Endpoints, c.Logger = []string{s.url()}, zap.NewNop()
	client, err := clientv3.New(c)
	require.NoError(s.t, err)
	s.client = client
	s.t.Cleanup(func() { _ = client.Close() })
}

// soon is a context for one request.
func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// put writes a key and returns the revision. Members that are electing a leader
// let requests time out, and a write may then be made again.
func (s *server) put(key, value string) int64 {
	s.t.Helper()
	ctx := soon(s.t)
	for {
		r, err := s.client.Put(ctx, key, value)
		if err == nil {
			return r.Header.Revision
		}
		require.True(s.t, slices.ContainsFunc([]error{
			rpctypes.ErrTimeout, rpctypes.ErrTimeoutDueToLeaderFail, rpctypes.ErrTimeoutDueToConnectionLost, rpctypes.ErrLeaderChanged, rpctypes.ErrNoLeader,
		}, func(known error) bool { return errors.Is(err, known) }), err)
	}
}

func (s *server) remove(key string) {
	s.t.Helper()
	_, err := s.client.Delete(soon(s.t), key)
	require.NoError(s.t, err)
}

// compact has the server forget what was before the newest revision.
func (s *server) compact(revision int64) {
	s.t.Helper()
	_, err := s.client.Compact(soon(s.t), revision, clientv3.WithCompactPhysical())
	require.NoError(s.t, err)
}
