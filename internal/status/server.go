package status

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/userspace-proxy/userspace-proxy/internal/explain"
)

// Config says what is told where.
type Config struct {
	HealthAddress  string // for /healthz, /livez and /readyz, as --healthz-bind-address has it; empty: nowhere
	MetricsAddress string // for everything, as --metrics-bind-address has it; empty: nowhere

	Health  func() Health      // called for each request, by several goroutines
	Report  func(Lists) Report // the same
	Explain func(explain.Question) explain.Answer
	Metrics prometheus.Gatherer
	Probes  *Probes  // nil: not counted
	Names   []string // of this node, in small letters, by which one may ask for more than health
	Log     logrus.FieldLogger

	Profiling bool // pprof beside the metrics

	Configuration any // what /configz shows, in the form of kube-proxy's configuration
}

// CheckAddress says what is wrong with an address to bind, as flags have it.
func CheckAddress(address string) error {
	if address == "" {
		return nil
	}
	if _, err := netip.ParseAddrPort(address); err != nil {
		return fmt.Errorf("%q is not an IP address and a port like 127.0.0.1:10249 or [::1]:10249, nor empty for none", address)
	}
	return nil
}

// Server is a server for each address. Close it, or let Run do so.
type Server struct {
	servers []*http.Server
	sockets []net.Listener
	log     logrus.FieldLogger
}

// Listen binds the addresses, so that from now on clients wait instead of
// being refused. An error names the flag.
func Listen(c Config) (*Server, error) {
	s := &Server{log: c.Log}
	for _, at := range []struct {
		flag, address string
		handler       http.Handler
	}{
		{"--healthz-bind-address", c.HealthAddress, healthOnly(c)},
		{"--metrics-bind-address", c.MetricsAddress, everything(c)},
	} {
		if at.address == "" {
			continue
		}
		socket, err := listen(at.address)
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("%s %s: %w", at.flag, at.address, err)
		}
		c.Log.Infof("%s: listening on %s", at.flag, socket.Addr())
		s.sockets = append(s.sockets, socket)
		s.servers = append(s.servers, c.server(at.handler))
	}
	return s, nil
}

// listen binds one address in its own family alone: 0.0.0.0 is not ::.
func listen(address string) (net.Listener, error) {
	network := "tcp4"
	if strings.HasPrefix(address, "[") {
		network = "tcp6"
	}
	socket, err := net.Listen(network, address)
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err // the address is named already
	}
	return socket, err // Listen names flag and address
}

// server is meant for a few clients that are known, and still lets nobody hold
// a connection for ever. Profiles take their time to write.
func (c Config) server(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      2 * time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          log.New(debugWriter{c.Log}, "", 0),
	}
}

// debugWriter takes what http.Server has to say about its clients.
type debugWriter struct{ log logrus.FieldLogger }

func (w debugWriter) Write(line []byte) (int, error) {
	w.log.Debug("status server: " + strings.TrimSpace(string(line)))
	return len(line), nil
}

// Addresses are those that are bound, the one for health first.
func (s *Server) Addresses() []net.Addr {
	var all []net.Addr
	for _, socket := range s.sockets {
		all = append(all, socket.Addr())
	}
	return all
}

// Run answers until ctx ends, lets the requests that are being answered come
// to their end for a moment, and closes everything.
func (s *Server) Run(ctx context.Context) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	errs := make([]error, len(s.servers))
	for i, server := range s.servers {
		all.Go(func() {
			defer stop()
			errs[i] = server.Serve(s.sockets[i])
		})
	}
	<-running.Done()
	s.shutdown()
	all.Wait()

	var failed *multierror.Error
	for _, err := range errs {
		if !errors.Is(err, http.ErrServerClosed) {
			failed = multierror.Append(failed, fmt.Errorf("status server: %w", err))
		}
	}
	return failed.ErrorOrNil()
}

func (s *Server) shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, server := range s.servers {
		if server.Shutdown(ctx) != nil {
			_ = server.Close() // clients that take longer have had their time
		}
	}
}

// Close closes everything at once. It is for a server that Run never ran.
func (s *Server) Close() {
	for _, socket := range s.sockets {
		_ = socket.Close() // nothing was sent or received
	}
}
