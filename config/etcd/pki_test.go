package etcd

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/userspace-proxy/userspace-proxy/internal/testpki"
)

// authority signs for servers and their clients.
type authority struct {
	*testpki.Authority
	t testing.TB
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	return &authority{testpki.New(t), t}
}

// startTLS runs a server with a certificate of this authority, which asks
// clients for theirs where it is told to.
func (a *authority) startTLS(flags ...string) *server {
	a.t.Helper()
	return a.startTLSUntil(time.Now().Add(time.Hour), flags...)
}

func (a *authority) startTLSUntil(end time.Time, flags ...string) *server {
	a.t.Helper()
	s := newServer(a.t)
	own := a.IssueUntil(end, "server-"+s.addr, s.addr)
	s.scheme, s.flags = "https", append([]string{"--cert-file=" + own.Cert, "--key-file=" + own.Key}, flags...)
	s.start()
	return s
}

// wantsCertificates has a server ask for certificates that this authority signed.
func (a *authority) wantsCertificates() []string {
	return []string{"--client-cert-auth", "--trusted-ca-file=" + a.File}
}

// login is for the client of a test, as a user.
func (a *authority) login(user string) clientv3.Config {
	a.t.Helper()
	return clientv3.Config{TLS: a.Client(a.Issue(user))}
}

// as has a source show a certificate, and trust an authority's.
func as(p testpki.Pair, ca *authority) func(*Options) {
	return func(o *Options) {
		o.CertFile, o.KeyFile = p.Cert, p.Key
		if ca != nil {
			o.CAFile = ca.File
		}
	}
}
