package testpki

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
)

// Authority signs the certificates of one test.
type Authority struct {
	t    testing.TB
	Dir  string // has the files of all that it signs
	File string // its own certificate
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Pair is the files of a certificate and its key. Zero is none.
type Pair struct{ Cert, Key string }

// New is an authority whose files live as long as the test.
func New(t testing.TB) *Authority {
	t.Helper()
	dir := t.TempDir()
	a := &Authority{t: t, Dir: dir, File: filepath.Join(dir, "ca.pem"), key: NewKey(t)}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tests"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: later(),
	}
	a.sign(a.File, a.cert, &a.key.PublicKey)
	return a
}

// later is until when certificates hold that do not expire in a test.
func later() time.Time { return time.Now().Add(time.Hour) }

// Issue makes NAME.pem and NAME-key.pem, for a server at these addresses or,
// without any, for a client of this name.
func (a *Authority) Issue(name string, addrs ...string) Pair {
	a.t.Helper()
	return a.IssueUntil(later(), name, addrs...)
}

// IssueUntil is Issue with an end.
func (a *Authority) IssueUntil(end time.Time, name string, addrs ...string) Pair {
	a.t.Helper()
	p := Pair{Cert: filepath.Join(a.Dir, name+".pem"), Key: filepath.Join(a.Dir, name+"-key.pem")}
	a.write(p, end, name, addrs...)
	return p
}

// Renew is Issue into files that are there already.
func (a *Authority) Renew(p Pair, name string, addrs ...string) {
	a.t.Helper()
	a.write(p, later(), name, addrs...)
}

func (a *Authority) write(p Pair, end time.Time, name string, addrs ...string) {
	a.t.Helper()
	key := NewKey(a.t)
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		NotBefore: a.cert.NotBefore, NotAfter: end,
	}
	for _, s := range addrs {
		cert.IPAddresses = append(cert.IPAddresses, net.ParseIP(s))
	}
	a.sign(p.Cert, cert, &key.PublicKey)
	WriteKey(a.t, p.Key, key)
}

func (a *Authority) sign(file string, cert *x509.Certificate, key *ecdsa.PublicKey) {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, key, a.key)
	require.NoError(a.t, err)
	writePEM(a.t, file, "CERTIFICATE", der)
}

// Client is how a test itself connects, with a certificate of its own if there
// is one.
func (a *Authority) Client(own Pair) *tls.Config {
	a.t.Helper()
	content, err := os.ReadFile(a.File)
	require.NoError(a.t, err)
	c := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	require.True(a.t, c.RootCAs.AppendCertsFromPEM(content))
	if own != (Pair{}) {
		pair, err := tls.LoadX509KeyPair(own.Cert, own.Key)
		require.NoError(a.t, err)
		c.Certificates = []tls.Certificate{pair}
	}
	return c
}

// NewKey is a private key.
func NewKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

// WriteKey writes a private key in PEM, in the older form that all of
// Kubernetes reads.
func WriteKey(t testing.TB, file string, key *ecdsa.PrivateKey) {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	writePEM(t, file, "EC PRIVATE KEY", der)
}

func writePEM(t testing.TB, file, kind string, der []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}
