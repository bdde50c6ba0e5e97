package etcd

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/userspace-proxy/userspace-proxy/internal/testpki"
)

func TestSource_certificates(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	s := ca.startTLS(ca.wantsCertificates()...)
	s.connect(ca.login("writer"))
	s.put(serviceKey("web"), aService("web", "10.96.0.1"))
	f := s.source(as(ca.Issue("proxy"), ca))
	f.shows(t, "Service default/web 10.96.0.1")
	f.recovers(t)
}

// TestSource_refused: what somebody has to mend ends the start, and says which
// flag it is.
func TestSource_refused(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t), newAuthority(t)
	asks := ca.startTLS(ca.wantsCertificates()...)
	open := ca.startTLS()
	mine := ca.Issue("proxy")
	elsewhere := newGate(t, open.hostPort())
	for name, c := range map[string]struct {
		at      *server
		options []func(*Options)
		want    string // FILE stands for the certificate's
	}{
		"no CA": {
			open, nil, "--etcd-cafile: is needed, since this machine does not know who signed the server's certificate: ",
		},
		"another CA": {
			open, []func(*Options){as(testpki.Pair{}, other)}, "--etcd-cafile: " + other.File + " did not sign the server's certificate: ",
		},
		"no certificate": {
			asks, []func(*Options){as(testpki.Pair{}, ca)}, "--etcd-certfile: is needed, since the server wants a certificate: ",
		},
		"a certificate of another CA": {
			asks, []func(*Options){as(other.Issue("proxy"), ca)}, "--etcd-certfile: the server refuses " + other.Dir + "/proxy.pem: ",
		},
		"a certificate that has expired": {
			asks, []func(*Options){as(ca.IssueUntil(time.Now().Add(-time.Hour), "old"), ca)}, "--etcd-certfile: the server refuses " + ca.Dir + "/old.pem: ",
		},
		"another name": {
			open, []func(*Options){as(mine, ca), func(o *Options) { o.Servers = []string{elsewhere.url("https")} }},
			"--etcd-servers: the server's certificate is for another name: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := c.at.source(c.options...)
			why := f.refuses(t)
			assert.True(t, strings.HasPrefix(why, c.want), why)
		})
	}
}

// TestSource_wrongScheme cannot be told from a server that is just ending.
func TestSource_wrongScheme(t *testing.T) {
	t.Parallel()
	s := newAuthority(t).startTLS()
	f := s.source(func(o *Options) { o.Servers = []string{"http://" + s.hostPort()} })
	f.fails(t, "(if the server has TLS, write https:// in --etcd-servers)")
	s = startServer(t)
	f = s.source(func(o *Options) { o.Servers = []string{"https://" + s.hostPort()} })
	f.fails(t, "(if the server has no TLS, write http:// in --etcd-servers)")
}

// TestSource_serverCertificateHasExpired: it may be our clock, and the server
// may get a new one, so it is waited for.
func TestSource_serverCertificateHasExpired(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	s := ca.startTLSUntil(time.Now().Add(-time.Hour))
	f := s.source(as(testpki.Pair{}, ca))
	f.fails(t, "certificate has expired or is not yet valid")
	ca.Renew(testpki.Pair{Cert: strings.TrimPrefix(s.flags[0], "--cert-file="), Key: strings.TrimPrefix(s.flags[1], "--key-file=")}, "server", s.addr)
	s.connect(ca.login("writer"))
	s.put(serviceKey("web"), aService("web", "10.96.0.1")) // etcd reads its files for each handshake as well
	f.shows(t, "Service default/web 10.96.0.1")
}

// TestSource_filesAreReadAgain: CA, certificate and key are replaced on both
// sides while the source runs.
func TestSource_filesAreReadAgain(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	s := ca.startTLS(ca.wantsCertificates()...)
	s.connect(ca.login("writer"))
	s.put(serviceKey("web"), aService("web", "10.96.0.1"))
	mine := ca.Issue("proxy")
	f := s.source(as(mine, ca))
	f.shows(t, "Service default/web 10.96.0.1")

	s.kill()
	next := newAuthority(t)
	own := next.Issue("server", s.addr)
	s.flags = append([]string{"--cert-file=" + own.Cert, "--key-file=" + own.Key}, next.wantsCertificates()...)
	s.start()
	s.connect(next.login("writer"))
	s.put(serviceKey("web"), aService("web", "10.96.0.2"))
	f.fails(t, "--etcd-cafile: "+ca.File+" did not sign the server's certificate") // and it does not end
	f.shows(t, "Service default/web 10.96.0.1")
	data, err := os.ReadFile(next.File)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(ca.File, data, 0o600))
	f.fails(t, "--etcd-certfile: the server refuses "+mine.Cert)
	next.Renew(mine, "proxy")
	f.shows(t, "Service default/web 10.96.0.2")
	f.recovers(t)
}

// grant lets a role read a prefix; users with the name of a certificate have it.
func (s *server) grant(prefix string) {
	s.t.Helper()
	_, err := s.client.RoleGrantPermission(soon(s.t), "reader", prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermRead))
	require.NoError(s.t, err)
}

// withUsers turns on users: root, who may do everything, and proxy.
func (a *authority) withUsers() *server {
	a.t.Helper()
	s := a.startTLS(a.wantsCertificates()...)
	s.connect(a.login("root"))
	for _, err := range []error{
		errOf(s.client.UserAddWithOptions(soon(a.t), "root", "", &clientv3.UserAddOptions{NoPassword: true})),
		errOf(s.client.UserGrantRole(soon(a.t), "root", "root")),
		errOf(s.client.RoleAdd(soon(a.t), "reader")),
		errOf(s.client.UserAddWithOptions(soon(a.t), "proxy", "", &clientv3.UserAddOptions{NoPassword: true})),
		errOf(s.client.UserGrantRole(soon(a.t), "proxy", "reader")),
		errOf(s.client.AuthEnable(soon(a.t))),
	} {
		require.NoError(a.t, err)
	}
	return s
}

func errOf(_ any, err error) error { return err }

func TestSource_rights(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	s := ca.withUsers()
	mine := ca.Issue("proxy")
	s.put(serviceKey("web"), aService("web", "10.96.0.1"))

	const may = "--etcd-certfile: its user may not read keys that are needed: reading /registry/"
	why := s.source(as(mine, ca)).refuses(t)
	assert.True(t, strings.HasPrefix(why, may+"services/specs/: "), why)
	assert.True(t, strings.HasSuffix(why, " (etcdctl role grant-permission ROLE read --prefix /registry)"), why)
	s.grant("/registry/services/")
	why = s.source(as(mine, ca)).refuses(t)
	assert.True(t, strings.HasPrefix(why, may+"endpointslices/: "), why)
	why = s.source(as(ca.Issue("stranger"), ca)).refuses(t)
	assert.True(t, strings.HasPrefix(why, may), why)
	s.grant("/registry/endpointslices/")

	f := s.source(as(mine, ca))
	f.shows(t, "Service default/web 10.96.0.1")
	_, err := s.client.UserRevokeRole(soon(t), "proxy", "reader")
	require.NoError(t, err)
	f.fails(t, may+"services/specs/: ")
	f.shows(t, "Service default/web 10.96.0.1")
	s.put(serviceKey("web"), aService("web", "10.96.0.2"))
	_, err = s.client.UserGrantRole(soon(t), "proxy", "reader")
	require.NoError(t, err)
	f.shows(t, "Service default/web 10.96.0.2")
	f.recovers(t)
}

// TestSource_usersWithoutCertificates: etcd has users, and takes none from us.
func TestSource_usersWithoutCertificates(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	for _, err := range []error{
		errOf(s.client.UserAdd(soon(t), "root", "secret")),
		errOf(s.client.UserGrantRole(soon(t), "root", "root")),
		errOf(s.client.AuthEnable(soon(t))),
	} {
		require.NoError(t, err)
	}
	require.Equal(t, "--etcd-certfile: etcd wants a user: give the certificate of one; the servers must run with --client-cert-auth",
		s.source().refuses(t))
}
