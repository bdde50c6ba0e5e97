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
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/userspace-proxy/userspace-proxy/internal/connlimit"
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
	HardFail  bool // an address that cannot be bound is an error, and not tried again

	Configuration any // what /configz shows, in the form of kube-proxy's configuration
}

// CheckAddress says what is wrong with an address to bind, as flags have it.
func CheckAddress(address string) error {
	for _, one := range eachFamily(address) {
		if _, err := netip.ParseAddrPort(one); err != nil {
			return fmt.Errorf("%q is not an IP address and a port like 127.0.0.1:10249 or [::1]:10249, nor a port alone like :10256 for all addresses of this machine, nor empty for none", address)
		}
	}
	return nil
}

// eachFamily are the addresses to bind where flags have this one: a port alone is
// a socket for each family.
func eachFamily(address string) []string {
	switch {
	case address == "":
		return nil
	case strings.HasPrefix(address, ":"):
		return []string{"0.0.0.0" + address, "[::]" + address}
	}
	return []string{address}
}

// Server is a server for each flag's addresses. Close it, or let Run do so.
type Server struct {
	places []*place
	log    logrus.FieldLogger
}

// place is one address and who answers there.
type place struct {
	flag, address string
	socket        net.Listener // nil: it cannot be bound yet
	server        *http.Server // of all places of the flag
}

// bindAgain is how soon an address that could not be bound, or whose socket has
// failed, is tried again, as kube-proxy does.
const bindAgain = 5 * time.Second

// mostConnections is how many may be open at the addresses of each flag. Who asks
// is answered soon, so that many are of no use to anybody, and they are among the
// descriptors that the data path keeps spare (see spare in package proxy).
const mostConnections = 20

// Listen binds the addresses, so that from now on clients wait instead of
// being refused. With HardFail one that cannot be bound is an error, which names
// the flag; otherwise Run tries it again. Of both families the machine may have one.
func Listen(c Config) (*Server, error) {
	s := &Server{log: c.Log}
	for _, at := range []struct {
		flag, address string
		server        *http.Server
	}{
		{"--healthz-bind-address", c.HealthAddress, c.healthServer()},
		{"--metrics-bind-address", c.MetricsAddress, c.server(everything(c))},
	} {
		addresses := eachFamily(at.address)
		for _, address := range addresses {
			p := &place{flag: at.flag, address: address, server: at.server}
			switch err := p.bind(c.Log); {
			case err == nil:
			case len(addresses) > 1 && errors.Is(err, syscall.EAFNOSUPPORT):
				continue
			case c.HardFail:
				s.Close()
				return nil, err
			default:
				c.Log.Errorf("%v; trying again every %v", err, bindAgain)
			}
			s.places = append(s.places, p)
		}
	}
	return s, nil
}

// bind binds the address. An error names the flag.
func (p *place) bind(log logrus.FieldLogger) error {
	socket, err := listen(p.address)
	if err != nil {
		return fmt.Errorf("%s %s: %w", p.flag, p.address, err)
	}
	log.Infof("%s: listening on %s", p.flag, socket.Addr())
	p.socket = socket
	return nil
}

// serve answers until the server is closed, or ctx ends. It binds the address where
// that is not done, and again where the socket fails: a restart would do no more, and
// end connections that nothing is wrong with.
func (p *place) serve(ctx context.Context, log logrus.FieldLogger) {
	again := time.NewTicker(bindAgain)
	defer again.Stop()
	for {
		for p.socket == nil {
			select {
			case <-ctx.Done():
				return
			case <-again.C:
				_ = p.bind(log) // why it cannot be bound is said already
			}
		}
		err := p.server.Serve(p.socket) // closes it
		if errors.Is(err, http.ErrServerClosed) {
			return
		}
		log.Errorf("%s %s: the socket has failed: %v; binding it again every %v", p.flag, p.address, err, bindAgain)
		p.socket = nil
	}
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

// healthServer is for anybody who asks: one short question a connection.
func (c Config) healthServer() *http.Server {
	s := c.server(healthOnly(c))
	s.ReadTimeout, s.WriteTimeout = s.ReadHeaderTimeout, s.ReadHeaderTimeout
	s.SetKeepAlivesEnabled(false)
	return s
}

// server is meant for a few clients that are known, and still lets nobody hold
// a connection for ever. Profiles take their time to write.
func (c Config) server(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ConnState:         connlimit.New(mostConnections).Note,
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

// Addresses are those that are bound, the one for health first. It is not for
// while Run runs.
func (s *Server) Addresses() []net.Addr {
	var all []net.Addr
	for _, p := range s.places {
		if p.socket != nil {
			all = append(all, p.socket.Addr())
		}
	}
	return all
}

// Run answers until ctx ends, lets the requests that are being answered come
// to their end for a moment, and closes everything.
func (s *Server) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for _, p := range s.places {
		all.Go(func() { p.serve(ctx, s.log) })
	}
	<-ctx.Done()
	s.shutdown()
	all.Wait()
	return nil
}

func (s *Server) shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, p := range s.places { // two of one server: the second time nothing is left to do
		if p.server.Shutdown(ctx) != nil {
			_ = p.server.Close() // clients that take longer have had their time
		}
	}
}

// Close closes everything at once. It is for a server that Run never ran.
func (s *Server) Close() {
	for _, p := range s.places {
		if p.socket != nil {
			_ = p.socket.Close() // nothing was sent or received
		}
	}
}
