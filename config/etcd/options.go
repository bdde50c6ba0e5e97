package etcd

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/sirupsen/logrus"
)

// DefaultPrefix is where Kubernetes keeps its objects.
const DefaultPrefix = "/registry"

// Options says where the keys are. Faults name the flags that each is set by.
type Options struct {
	Servers []string // URLs of one cluster's servers: http://10.0.0.1:2379; all http or all https. --etcd-servers
	Prefix  string   // what the keys begin with; empty is DefaultPrefix. --etcd-prefix

	// PEM files for https. They are read again for each new connection.
	CAFile   string // who may sign the servers' certificates; empty: whom the system trusts. --etcd-cafile
	CertFile string // who we are, which is our user where etcd knows users; empty: nobody. --etcd-certfile
	KeyFile  string // --etcd-keyfile

	// Check is how often the servers are asked whether all that they have is
	// known here; 0 means 10 s.
	Check time.Duration
	// Log hears when etcd cannot be read, and when it can again. Nil is silence.
	Log logrus.FieldLogger
}

// Defaults fills in what is not set.
func (o *Options) Defaults() {
	const check = 10 * time.Second
	if o.Check == 0 {
		o.Check = check
	}
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	o.Prefix = path.Join("/", o.Prefix) // as the API server does
	if o.Log == nil {
		silent := logrus.New()
		silent.SetOutput(io.Discard)
		o.Log = silent
	}
}

// Validate tells all that is wrong with the options, the files included.
func (o *Options) Validate() error {
	var faults *multierror.Error
	if len(o.Servers) == 0 {
		faults = multierror.Append(faults, errors.New("--etcd-servers: is empty: give the URL of a server, like http://127.0.0.1:2379"))
	}
	schemes := map[string]bool{}
	for _, s := range o.Servers {
		scheme, err := checkServer(s)
		if err != nil {
			faults = multierror.Append(faults, fmt.Errorf("--etcd-servers: %w", err))
		}
		schemes[scheme] = true
	}
	if schemes["http"] && schemes["https"] {
		faults = multierror.Append(faults, errors.New("--etcd-servers: some are http:// and some https://: a cluster has one or the other"))
	}
	if err := o.checkTLS(schemes["https"] || !schemes["http"]); err != nil {
		faults = multierror.Append(faults, err)
	}
	if o.Check < 0 {
		faults = multierror.Append(faults, fmt.Errorf("the check interval %v is negative", o.Check))
	}
	return faults.ErrorOrNil()
}

// checkServer returns the scheme of a server's URL, or what is wrong with it.
func checkServer(s string) (scheme string, err error) {
	u, err := url.Parse(s)
	switch {
	case !strings.Contains(s, "://"):
		return "", fmt.Errorf("%q is no URL: write http://HOST:PORT or https://HOST:PORT", s)
	case err != nil:
		return "", fmt.Errorf("%q is no URL: %w", s, errors.Unwrap(err))
	case u.Scheme != "http" && u.Scheme != "https":
		return "", fmt.Errorf("%q: write http:// or https:// in place of %s://", s, u.Scheme)
	case u.User != nil:
		return u.Scheme, fmt.Errorf("%q: the user is who a certificate says, see --etcd-certfile", u.Redacted())
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return u.Scheme, fmt.Errorf("%q: leave out what stands behind the port", s)
	}
	if host, port, err := net.SplitHostPort(u.Host); err != nil || host == "" || port == "" {
		return u.Scheme, fmt.Errorf("%q: write a host and a port, like %s://127.0.0.1:2379", s, u.Scheme)
	}
	return u.Scheme, nil
}
