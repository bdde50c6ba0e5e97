package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/grpc/status"
)

// refusedError says that servers refuse us, or we them, and that this will not
// pass by itself: somebody has to mend a flag, a certificate or a right.
type refusedError struct {
	why string
}

func (e *refusedError) Error() string { return e.why }

// explain puts an error into words, with the flag that it comes from. gRPC has
// made text of what went wrong on the way to a server, so text is what it goes
// by; the tests make each of these errors with a real server.
func (o *Options) explain(err error) error {
	if err == nil {
		return nil
	}
	text := plain(err)
	has := func(s string) bool { return strings.Contains(text, s) }
	refused := func(format string, args ...any) error { return &refusedError{fmt.Sprintf(format, args...)} }
	switch {
	case has("etcdserver: permission denied"):
		return refused("--etcd-certfile: its user may not read keys that are needed: %s (etcdctl role grant-permission ROLE read --prefix %s)", text, o.Prefix)
	case has("etcdserver: user name is empty"):
		return refused("--etcd-certfile: etcd wants a user: give the certificate of one; the servers must run with --client-cert-auth")
	case has("x509: certificate signed by unknown authority"):
		if o.CAFile == "" {
			return refused("--etcd-cafile: is needed, since this machine does not know who signed the server's certificate: %s", text)
		}
		return refused("--etcd-cafile: %s did not sign the server's certificate: %s", o.CAFile, text)
	case has("x509: certificate is valid for"), has("x509: cannot validate certificate for"), has("x509: certificate is not valid for any names"):
		return refused("--etcd-servers: the server's certificate is for another name: %s", text)
	case refusesCertificate(text):
		if o.CertFile == "" {
			return refused("--etcd-certfile: is needed, since the server wants a certificate: %s", text)
		}
		return refused("--etcd-certfile: the server refuses %s: %s", o.CertFile, text)
	case has("handshake failed: EOF"): // or the server was just ending
		text += " (if the server has no TLS, write http:// in --etcd-servers)"
	case has("server preface: EOF"):
		text += " (if the server has TLS, write https:// in --etcd-servers)"
	}
	return errors.New(text)
}

// refusesCertificate says whether the server has ended TLS over our certificate:
// it is missing, has expired, or somebody unknown to it signed it.
func refusesCertificate(text string) bool {
	_, alert, ok := strings.Cut(text, "remote error: tls: ")
	return ok && strings.Contains(alert, "certificate")
}

// plain is an error without the wrapping of gRPC.
func plain(err error) string {
	text := err.Error()
	var read *readError
	if errors.As(err, &read) {
		return "reading " + read.path + ": " + plain(read.err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	if s, ok := status.FromError(err); ok {
		text = s.Message()
	}
	if _, inner, ok := strings.Cut(text, `desc = "`); ok {
		if s, err := strconv.Unquote(`"` + inner); err == nil {
			text = s
		}
	}
	return strings.TrimPrefix(text, "transport: ")
}
