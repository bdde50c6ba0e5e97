package e2e

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/internal/testpki"
)

// Where the control plane is: an address of back that no endpoint has.
const (
	controlAddr = "10.10.2.9"
	etcdPort    = "2379"
	apiPort     = "6443"
)

// etcdServer is a real etcd, a process of its own on a host. It may be killed
// and started again, with the data that it had or with older data.
type etcdServer struct {
	*process
	owner  *testing.T // with which it ends
	host   *nettest.Host
	data   string             // its data directory
	ca     *testpki.Authority // nil: without TLS
	client *clientv3.Client   // of the test, on the same host
}

// newEtcd starts etcd on a host, with TLS and client certificates where there
// is an authority. It does not wait for it.
func newEtcd(t *testing.T, host *nettest.Host, ca *testpki.Authority) *etcdServer {
	t.Helper()
	e := &etcdServer{owner: t, host: host, data: filepath.Join(t.TempDir(), "data"), ca: ca}
	config := clientv3.Config{
		Endpoints: []string{e.url()}, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return host.Dial(ctx, "tcp", address)
		})},
	}
	if ca != nil {
		config.TLS = ca.Client(ca.Issue("root"))
	}
	e.start(t)
	var err error
	e.client, err = clientv3.New(config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = e.client.Close() })
	return e
}

func (e *etcdServer) url() string {
	scheme := "http://"
	if e.ca != nil {
		scheme = "https://"
	}
	return scheme + net.JoinHostPort(controlAddr, etcdPort)
}

// start starts it, for the first time or after a kill.
func (e *etcdServer) start(t *testing.T) {
	t.Helper()
	// The peer's address is in the member's data, and nobody comes by it.
	const peer = "http://127.0.0.1:2380"
	args := []string{
		bin(t, "etcd"), "--data-dir=" + e.data, "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=" + e.url(), "--advertise-client-urls=" + e.url(),
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=default=" + peer,
		"--max-txn-ops=10000",
	}
	if e.ca != nil {
		pair := e.ca.Issue("etcd", controlAddr)
		args = append(args, "--cert-file="+pair.Cert, "--key-file="+pair.Key, "--trusted-ca-file="+e.ca.File, "--client-cert-auth")
	}
	e.process = spawn(e.owner, e.host, nil, args...)
}

// ready waits until it answers.
func (e *etcdServer) ready(t *testing.T) {
	t.Helper()
	eventually(t, func() bool {
		require.False(t, e.hasEnded(), "etcd has ended")
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := e.client.Get(ctx, "ready")
		return err == nil
	}, saying("etcd to answer"))
}

// flags are those of a proxy, or with another prefix of an API server, that
// lead to it: a client of this name.
func (e *etcdServer) flags(t *testing.T, name string) []string {
	t.Helper()
	args := []string{"--etcd-servers=" + e.url()}
	if e.ca != nil {
		pair := e.ca.Issue(name)
		args = append(args, "--etcd-cafile="+e.ca.File, "--etcd-certfile="+pair.Cert, "--etcd-keyfile="+pair.Key)
	}
	return args
}

// keep copies the data of an etcd that does not run.
func (e *etcdServer) keep(t *testing.T) string {
	t.Helper()
	require.True(t, e.hasEnded())
	kept := filepath.Join(e.owner.TempDir(), "kept") // TempDir is another one each time
	require.NoError(t, os.CopyFS(kept, os.DirFS(e.data)))
	return kept
}

// restore replaces the data of an etcd that does not run by what was kept;
// empty: by nothing.
func (e *etcdServer) restore(t *testing.T, kept string) {
	t.Helper()
	require.True(t, e.hasEnded())
	require.NoError(t, os.RemoveAll(e.data))
	if kept != "" {
		require.NoError(t, os.CopyFS(e.data, os.DirFS(kept)))
	}
}

// compact removes all history.
func (e *etcdServer) compact(t *testing.T) {
	t.Helper()
	now, err := e.client.Get(t.Context(), "ready")
	require.NoError(t, err)
	_, err = e.client.Compact(t.Context(), now.Header.Revision, clientv3.WithCompactPhysical())
	require.NoError(t, err)
}

// bin is a program of a control plane that scripts/controlplane.sh has built.
func bin(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "bin", name))
	require.NoError(t, err)
	require.FileExists(t, path, "build it with: make controlplane (scripts/controlplane.sh)")
	return path
}
