package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/sirupsen/logrus"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// Rules leads portals to listeners: nftables.Runner and iptables.Runner.
type Rules interface {
	// Sync makes the rules equal to redirects, all of them, at one moment. On
	// an error the rules that were in force before still are, and the next
	// call starts from what is really there; but after a service.LeftOutError
	// all redirects are in force that it does not name, and no others. Calls
	// come one at a time.
	Sync(ctx context.Context, redirects []service.Redirect) error
	// SetLocalPods says how the traffic of pods on this node is told from what
	// comes from outside, from the next Sync on.
	SetLocalPods(service.LocalPods)
}

// maxKeepAlive is what the kernel takes (MAX_TCP_KEEPIDLE, include/net/tcp.h).
const maxKeepAlive = 32767 * time.Second

// Config is what a Proxier needs to know. Zero values stand for the defaults
// that Defaults fills in.
type Config struct {
	Log     logrus.FieldLogger
	Metrics *Metrics // nil: not counted
	// AfterSync is called after each reconcile, good or not, by the goroutine
	// that Reconcile is called in; nil: nothing is.
	AfterSync func()

	// Rules leads portals to listeners on the addresses of Listen. Without
	// Rules listeners stand on the portals themselves.
	Rules  Rules
	Listen map[service.Family]netip.Addr
	// Conntrack is what translates for Rules; nil: entries are left alone.
	Conntrack Conntrack
	Ports     service.PortRange // default 10000-29999
	Mark      uint32            // put on own dials, so that rules leave them alone; 0: none (it needs CAP_NET_ADMIN)

	// Transparent makes dials from clients' addresses; zero: none is.
	Transparent Transparent

	DialTimeout      time.Duration // for all attempts together; default 5 s
	FallbackDelay    time.Duration // after which a second endpoint is tried beside the first; default 250 ms
	HalfCloseTimeout time.Duration // a half-closed connection without traffic ends after it; default 2 min
	IdleTimeout      time.Duration // a connection without traffic ends after it; 0: never
	KeepAlive        time.Duration // time between keepalive probes; default 30 s, negative: none
	MaxConnections   int           // TCP, open at once; 0: no limit but descriptors
	MaxPerClient     int           // of them from one address; 0: no limit
	UDPTimeout       time.Duration // a flow without traffic ends after it; default 30 s
	MaxUDPFlows      int           // default 65536

	MetricsPerEndpoint bool // of each endpoint beside those of each service port

	Trace []Traced // whose connections and flows are told of step by step; none: nobody's

	SyncPeriod    time.Duration // between full reconciles; default 30 s
	MinSyncPeriod time.Duration // between two reconciles; default 100 ms
	Linger        time.Duration // how long a replaced listener accepts on; default 1 s
	Descriptors   int           // that the process may open; default RLIMIT_NOFILE
}

// Defaults fills in what is not set.
func (c *Config) Defaults() {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&c.DialTimeout, 5*time.Second)
	set(&c.FallbackDelay, 250*time.Millisecond)
	set(&c.HalfCloseTimeout, 2*time.Minute)
	set(&c.KeepAlive, 30*time.Second)
	set(&c.UDPTimeout, 30*time.Second)
	set(&c.SyncPeriod, 30*time.Second)
	set(&c.MinSyncPeriod, 100*time.Millisecond)
	set(&c.Linger, time.Second)
	if c.Ports == (service.PortRange{}) {
		c.Ports = service.PortRange{First: 10000, Last: 29999}
	}
	if c.MaxUDPFlows == 0 {
		c.MaxUDPFlows = 65536
	}
	if c.Descriptors == 0 {
		c.Descriptors = descriptorLimit()
	}
	if c.Log == nil {
		c.Log = logrus.StandardLogger()
	}
}

// Validate names everything that is wrong, by the flag that sets it.
func (c *Config) Validate() error {
	var errs *multierror.Error
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{
		{"--dial-timeout", c.DialTimeout},
		{"--tcp-half-close-timeout", c.HalfCloseTimeout},
		{"--udp-timeout", c.UDPTimeout},
		{"--sync-period", c.SyncPeriod},
		{"--min-sync-period", c.MinSyncPeriod},
	} {
		if d.value <= 0 {
			errs = multierror.Append(errs, fmt.Errorf("%s must be above 0, got %v", d.flag, d.value))
		}
	}
	if c.IdleTimeout < 0 {
		errs = multierror.Append(errs, fmt.Errorf("--tcp-idle-timeout must not be below 0, got %v", c.IdleTimeout))
	}
	if c.KeepAlive > maxKeepAlive {
		errs = multierror.Append(errs, fmt.Errorf("--tcp-keepalive must be at most %v, got %v", maxKeepAlive, c.KeepAlive))
	}
	if c.MaxConnections < 0 {
		errs = multierror.Append(errs, fmt.Errorf("--max-connections must not be below 0, got %d", c.MaxConnections))
	}
	if c.MaxPerClient < 0 {
		errs = multierror.Append(errs, fmt.Errorf("--max-connections-per-client must not be below 0, got %d", c.MaxPerClient))
	}
	if c.MaxUDPFlows < 1 {
		errs = multierror.Append(errs, fmt.Errorf("--max-udp-flows must be above 0, got %d", c.MaxUDPFlows))
	}
	if c.Ports.First == 0 || c.Ports.First > c.Ports.Last {
		errs = multierror.Append(errs, fmt.Errorf("--proxy-port-range must be FIRST-LAST within 1-65535, got %d-%d", c.Ports.First, c.Ports.Last))
	}
	if err := c.Transparent.validate(c); err != nil {
		errs = multierror.Append(errs, err)
	}
	if c.Rules != nil && len(c.Listen) == 0 {
		errs = multierror.Append(errs, errors.New("rules need a listening address in at least one family"))
	}
	return errs.ErrorOrNil()
}
