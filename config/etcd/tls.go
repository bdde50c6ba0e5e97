package etcd

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/hashicorp/go-multierror"
)

// checkTLS tells all that is wrong with the files for TLS.
func (o *Options) checkTLS(used bool) error {
	var faults *multierror.Error
	for _, file := range []struct{ flag, name string }{
		{"--etcd-cafile", o.CAFile}, {"--etcd-certfile", o.CertFile}, {"--etcd-keyfile", o.KeyFile},
	} {
		if file.name != "" && !used {
			faults = multierror.Append(faults, fmt.Errorf("%s: is not used with http:// servers: write https:// in --etcd-servers", file.flag))
		}
	}
	if _, err := o.authorities(); err != nil {
		faults = multierror.Append(faults, err)
	}
	switch {
	case o.CertFile != "" && o.KeyFile == "":
		faults = multierror.Append(faults, errors.New("--etcd-certfile: needs its key: give --etcd-keyfile"))
	case o.CertFile == "" && o.KeyFile != "":
		faults = multierror.Append(faults, errors.New("--etcd-keyfile: needs its certificate: give --etcd-certfile"))
	case o.CertFile != "":
		if _, err := o.certificate(); err != nil {
			faults = multierror.Append(faults, err)
		}
	}
	return faults.ErrorOrNil()
}

// tlsConfig is for connections from now on; nil where the servers have no TLS.
func (o *Options) tlsConfig() (*tls.Config, error) {
	if !strings.HasPrefix(o.Servers[0], "https:") {
		return nil, nil //nolint:nilnil // as clientv3.Config has it
	}
	authorities, err := o.authorities()
	if err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authorities}
	if o.CertFile != "" {
		// Read for each handshake, as certificates are replaced while we run.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return o.certificate() }
	}
	return c, nil
}

// authorities are those who may sign the servers' certificates; nil means those
// whom the system trusts.
func (o *Options) authorities() (*x509.CertPool, error) {
	if o.CAFile == "" {
		return nil, nil //nolint:nilnil // as tls.Config has it
	}
	data, err := os.ReadFile(o.CAFile)
	if err != nil {
		return nil, fmt.Errorf("--etcd-cafile: %w", unread(o.CAFile, err))
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("--etcd-cafile: %s: holds no certificate in PEM form", o.CAFile)
	}
	return pool, nil
}

// certificate is ours, with its key.
func (o *Options) certificate() (*tls.Certificate, error) {
	var faults *multierror.Error
	cert, err := os.ReadFile(o.CertFile)
	if err != nil {
		faults = multierror.Append(faults, fmt.Errorf("--etcd-certfile: %w", unread(o.CertFile, err)))
	}
	key, err := os.ReadFile(o.KeyFile)
	if err != nil {
		faults = multierror.Append(faults, fmt.Errorf("--etcd-keyfile: %w", unread(o.KeyFile, err)))
	}
	if err := faults.ErrorOrNil(); err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("--etcd-certfile, --etcd-keyfile: %s, %s: %w", o.CertFile, o.KeyFile, err)
	}
	return &pair, nil
}

// unread is why a file cannot be read.
func unread(name string, err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	return fmt.Errorf("%s: %w", name, err)
}
