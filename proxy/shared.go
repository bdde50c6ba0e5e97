package proxy

import (
	"errors"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// shared is what all listeners of a Proxier use.
type shared struct {
	log      logrus.FieldLogger
	warn     *limiter
	metrics  *Metrics
	budget   *budget
	limits   *limits
	own      *ownDials
	pods     atomic.Pointer[service.LocalPods]
	wake     func() // has the Proxier reconcile soon; it returns at once
	accounts *accounts
	tracer   *tracer // nil: nothing is traced
	tcp      *tcpEngine
	timeouts tcpTimeouts
	mark     uint32 // put on own dials; 0: none

	transparent Transparent

	udp     *udpFlows
	udpIdle time.Duration // of flows; Run alone changes it
}

// isInside says whether a client is this host or, as far as addresses tell, a pod on it.
func (s *shared) isInside(client netip.Addr) bool {
	return s.own.isHere(client) || s.pods.Load().Contains(client)
}

// tcpTimeouts are what they are called in Config.
type tcpTimeouts struct {
	dial, fallback, halfClose, idle, keepAlive time.Duration
}

// endpointCounts is the number of connections or flows to each endpoint of
// each service port.
type endpointCounts map[service.Key]map[netip.AddrPort]int

func (c endpointCounts) add(key service.Key, endpoint netip.AddrPort) {
	if c[key] == nil {
		c[key] = make(map[netip.AddrPort]int)
	}
	c[key][endpoint]++
}

// Reasons for which a TCP connection ends; they are labels of a metric.
const (
	endedEOF     = "eof"     // both streams ended
	endedReset   = "reset"   // one side reset its connection or vanished
	endedTimeout = "timeout" // idle, or half-closed and idle
	endedAbort   = "abort"   // the proxy wanted it to end
)

// Reasons for which a client is reset unserved; they are labels of a metric.
const (
	refusedNoEndpoint   = "no_endpoint"
	refusedDialFailed   = "dial_failed"
	refusedLimit        = "max_connections"
	refusedClientLimit  = "max_connections_per_client"
	refusedServiceLimit = "max_connections_of_service"
	refusedOwnDial      = "own_dial"
	refusedSource       = "source_range"
)

// maxAttempts bounds how many endpoints one client's connection may try: a
// Service whose hundred endpoints all refuse must not make a hundred dials of
// each connect.
const maxAttempts = 8

// keepAliveProbes is how many keepalive probes may go unanswered before the peer
// counts as gone. Data that is not acknowledged is the kernel's to give up
// (net.ipv4.tcp_retries2, some 15 minutes): TCP_USER_TIMEOUT would be sooner,
// and would also end connections whose peer is there and has stopped reading.
const keepAliveProbes = 5

// isLocal tells a failure of this host, descriptors or rights, from one of the
// endpoint's. A lack of local ports counts as the endpoint's: ports run out
// for each destination apart, so another endpoint helps.
func isLocal(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) ||
		errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.EPERM)
}
