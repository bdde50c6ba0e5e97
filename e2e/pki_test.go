package e2e

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

// authority signs the certificates of one test.
type authority struct {
	dir  string
	file string // its own certificate
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// keyPair is the files of a certificate and its key.
type keyPair struct{ cert, key string }

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir(), key: newKey(t)}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "the test's"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	a.file = a.sign(t, "ca", a.cert, &a.key.PublicKey)
	return a
}

// issue makes a certificate for a server at these addresses or, without any,
// for a client of this name.
func (a *authority) issue(t *testing.T, name string, addrs ...string) keyPair {
	t.Helper()
	key := newKey(t)
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		NotBefore: a.cert.NotBefore, NotAfter: a.cert.NotAfter,
	}
	for _, s := range addrs {
		cert.IPAddresses = append(cert.IPAddresses, net.ParseIP(s))
	}
	return keyPair{cert: a.sign(t, name, cert, &key.PublicKey), key: writeKey(t, filepath.Join(a.dir, name+".key"), key)}
}

func (a *authority) sign(t *testing.T, name string, cert *x509.Certificate, key *ecdsa.PublicKey) string {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, key, a.key)
	require.NoError(t, err)
	return writePEM(t, filepath.Join(a.dir, name+".crt"), "CERTIFICATE", der)
}

// client is how the test itself connects with a certificate of its own; nil:
// none is asked for.
func (a *authority) client(t *testing.T, own *keyPair) *tls.Config {
	t.Helper()
	roots := x509.NewCertPool()
	content, err := os.ReadFile(a.file)
	require.NoError(t, err)
	require.True(t, roots.AppendCertsFromPEM(content))
	c := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	if own != nil {
		pair, err := tls.LoadX509KeyPair(own.cert, own.key)
		require.NoError(t, err)
		c.Certificates = []tls.Certificate{pair}
	}
	return c
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

func writeKey(t *testing.T, file string, key *ecdsa.PrivateKey) string {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	return writePEM(t, file, "EC PRIVATE KEY", der)
}

func writePEM(t *testing.T, file, kind string, der []byte) string {
	t.Helper()
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return file
}
