package healthport

import (
	"context"
	"errors"
	"fmt"
	"log"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/userspace-proxy/userspace-proxy/config"
	"github.com/userspace-proxy/userspace-proxy/internal/connlimit"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// Server answers at the ports that it is told of. Set and Problems may be
// called by anybody at any time and do not block.
type Server struct {
	healthy func() bool
	log     logrus.FieldLogger
	wake    chan struct{} // capacity 1: what is wanted has changed

	mu       sync.Mutex                   // guards what follows
	want     map[place]config.HealthCheck // no two at one address
	problems map[place]service.Problem
	failed   []*http.Server // whose sockets have failed

	open    map[place]*http.Server // Run's alone
	limit   *connlimit.Limit       // of all ports together
	serving sync.WaitGroup
}

// mostConnections is how many may be open at all ports together. Who asks is
// answered at once, so that many are of no use to anybody, and they are among the
// descriptors that the data path keeps spare (see spare in package proxy).
const mostConnections = 20

// place is where one Service is asked about.
type place struct {
	service service.ServiceRef
	at      netip.AddrPort
}

// New makes a server. healthy says, for each request, whether the proxy does
// its work. Nothing is opened before Run.
func New(healthy func() bool, log logrus.FieldLogger) *Server {
	return &Server{
		healthy: healthy, log: log, wake: make(chan struct{}, 1),
		want: map[place]config.HealthCheck{}, problems: map[place]service.Problem{}, open: map[place]*http.Server{},
		limit: connlimit.New(mostConnections),
	}
}

// Set says which ports there are to be from now on, on which addresses, and
// what to answer. A port stands on the addresses of the families that its
// Service has. Of two Services that have one port the first in the list gets it.
func (s *Server) Set(checks []config.HealthCheck, addrs []netip.Addr) {
	want := map[place]config.HealthCheck{}
	owners := map[netip.AddrPort]service.ServiceRef{}
	lost := map[place]service.Problem{}
	for _, c := range checks {
		for _, a := range addrs {
			if _, ok := c.Local[service.FamilyOf(a)]; !ok {
				continue
			}
			p := place{c.Service, netip.AddrPortFrom(a, c.Port)}
			if owner, taken := owners[p.at]; taken {
				lost[p] = p.problem("PortTaken", fmt.Sprintf("Service %s/%s, which is older, has the port", owner.Namespace, owner.Name),
					"give one of them another healthCheckNodePort")
				continue
			}
			owners[p.at], want[p] = c.Service, c
		}
	}
	s.mu.Lock()
	s.want = want
	maps.DeleteFunc(s.problems, func(p place, _ service.Problem) bool { _, ok := want[p]; return !ok })
	maps.Copy(s.problems, lost)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Problems are the ports that cannot be opened.
func (s *Server) Problems() []service.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.problems))
}

// retry is how soon a port that could not be opened, or whose socket has failed,
// is tried again.
const retry = time.Second

// Run opens and closes ports until ctx ends, and returns when all are closed. It
// may be called again then.
func (s *Server) Run(ctx context.Context) error {
	again := time.NewTicker(retry)
	defer again.Stop()
	defer s.serving.Wait()
	defer func() { s.closeBut(nil) }()
	for {
		s.reopen()
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-again.C:
		}
	}
}

// reopen makes the ports that are open those that are wanted.
func (s *Server) reopen() {
	s.mu.Lock()
	want, failed := s.want, s.failed
	s.failed = nil
	s.mu.Unlock()
	for p, server := range s.open {
		if slices.Contains(failed, server) {
			_ = server.Close() // with the connections that it still has
			delete(s.open, p)
		}
	}
	s.closeBut(want) // first: one may want what another had
	for p := range want {
		if s.open[p] == nil {
			s.note(p, s.listen(p))
		}
	}
}

func (s *Server) closeBut(want map[place]config.HealthCheck) {
	for p, server := range s.open {
		if _, ok := want[p]; !ok {
			_ = server.Close() // who is being answered asks again
			delete(s.open, p)
		}
	}
}

// listen opens a port.
func (s *Server) listen(p place) error {
	network := "tcp4"
	if p.at.Addr().Is6() {
		network = "tcp6"
	}
	socket, err := net.Listen(network, p.at.String())
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err // the problem names the address
	}
	if err != nil {
		return err
	}
	const patience = 5 * time.Second // anybody may ask: one short question a connection
	server := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { s.answer(w, p) }),
		ReadHeaderTimeout: patience,
		ReadTimeout:       patience,
		WriteTimeout:      patience,
		MaxHeaderBytes:    16 << 10,
		ConnState:         s.limit.Note,
		ErrorLog:          log.New(debugWriter{s.log}, "", 0),
	}
	server.SetKeepAlivesEnabled(false)
	s.open[p] = server
	s.serving.Go(func() { s.serve(server, socket, p) })
	return nil
}

// serve answers at a port until its server is closed. Where the socket fails Run
// opens the port anew.
func (s *Server) serve(server *http.Server, socket net.Listener, p place) {
	err := server.Serve(socket) // closes it
	if errors.Is(err, http.ErrServerClosed) {
		return
	}
	s.log.WithError(err).Errorf("health check of Service %s/%s at %s: the socket has failed; opening it again every %v",
		p.service.Namespace, p.service.Name, p.at, retry)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = append(s.failed, server)
}

type debugWriter struct{ log logrus.FieldLogger }

func (w debugWriter) Write(line []byte) (int, error) {
	w.log.Debugf("health check port: %s", line)
	return len(line), nil
}

// note makes a problem of what keeps a port from being opened.
func (s *Server) note(p place, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, wanted := s.want[p]; err == nil || !wanted {
		delete(s.problems, p)
		return
	}
	reason, advice := "CannotListen", ""
	if errors.Is(err, syscall.EADDRINUSE) {
		reason = "PortTaken"
		advice = "a program on this node, or a node port of another Service, has the port: give the Service another healthCheckNodePort, or stop the program"
	}
	s.problems[p] = p.problem(reason, err.Error(), advice)
}

// problem is what is wrong at a place.
func (p place) problem(reason, why, advice string) service.Problem {
	return service.Problem{
		Object: "Service " + p.service.Namespace + "/" + p.service.Name, Field: "spec.healthCheckNodePort", Service: p.service,
		Reason: reason, Detail: fmt.Sprintf("load balancers cannot ask at %s: %s", p.at, why), Advice: advice,
	}
}

// answer says, in kube-proxy's words, how many endpoints there are here.
func (s *Server) answer(w http.ResponseWriter, p place) {
	s.mu.Lock()
	count := s.want[p].Local[service.FamilyOf(p.at.Addr())] // 0 where it is just being closed
	s.mu.Unlock()
	healthy := s.healthy()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(count))
	if count == 0 || !healthy {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	fmt.Fprintf(w, "{\n\t\"service\": {\n\t\t\"namespace\": %q,\n\t\t\"name\": %q\n\t},\n\t\"localEndpoints\": %d,\n\t\"serviceProxyHealthy\": %v\n}",
		p.service.Namespace, p.service.Name, count, healthy)
}
