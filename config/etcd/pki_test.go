package etcd

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// authority signs certificates, into files of a directory.
type authority struct {
	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tests"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	a.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	a.key = key
	writePEM(t, a.ca(), "CERTIFICATE", der)
	return a
}

func (a *authority) ca() string { return filepath.Join(a.dir, "ca.pem") }

// pair is the files of a certificate and its key.
type pair struct{ cert, key string }

// sign makes a certificate for a server at an address, or for a user.
func (a *authority) sign(name, addr string, until time.Time) pair {
	a.t.Helper()
	p := pair{filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+"-key.pem")}
	a.signInto(p, name, addr, until)
	return p
}

func (a *authority) signInto(p pair, name, addr string, until time.Time) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	if addr != "" {
		template.IPAddresses = []net.IP{net.ParseIP(addr)}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	require.NoError(a.t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(a.t, err)
	writePEM(a.t, p.cert, "CERTIFICATE", der)
	writePEM(a.t, p.key, "PRIVATE KEY", pkcs8)
}

func writePEM(t testing.TB, name, kind string, der []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

func later() time.Time { return time.Now().Add(time.Hour) }

// startTLS runs a server with a certificate of this authority, which asks
// clients for theirs where it is told to.
func (a *authority) startTLS(until time.Time, flags ...string) *server {
	a.t.Helper()
	s := newServer(a.t)
	own := a.sign("server-"+s.addr, s.addr, until)
	s.scheme, s.flags = "https", append([]string{"--cert-file=" + own.cert, "--key-file=" + own.key}, flags...)
	s.start()
	return s
}

// wantsCertificates has a server ask for certificates that this authority signed.
func (a *authority) wantsCertificates() []string {
	return []string{"--client-cert-auth", "--trusted-ca-file=" + a.ca()}
}

// login is for the client of a test, as a user.
func (a *authority) login(user string) clientv3.Config {
	a.t.Helper()
	p := a.sign(user, "", later())
	c, err := tls.LoadX509KeyPair(p.cert, p.key)
	require.NoError(a.t, err)
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return clientv3.Config{TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: []tls.Certificate{c}}}
}

// as has a source show a certificate, and trust an authority's.
func as(p pair, ca *authority) func(*Options) {
	return func(o *Options) {
		o.CertFile, o.KeyFile = p.cert, p.key
		if ca != nil {
			o.CAFile = ca.ca()
		}
	}
}
