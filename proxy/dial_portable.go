//go:build !linux || portable

package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/hashicorp/go-multierror"

	"github.com/userspace-proxy/userspace-proxy/service"
)

var errNoEndpoint = errors.New("no endpoint")

// dialer connects to endpoints.
type dialer struct {
	tcpTimeouts
	metrics *Metrics
	own     *ownDials
	under   *dialsUnderWay
}

// attempt is the outcome of one dial.
type attempt struct {
	endpoint netip.AddrPort
	conn     *net.TCPConn
	own      *ownDial // nil where the endpoint is not on this host
	err      error
}

// connect connects to an endpoint that the balancer picks for client. An endpoint
// that refuses is passed over at once; beside one that does not answer within
// the fallback delay another is tried, and the first to connect wins. The
// balancer hears of every endpoint that failed or was outrun.
func (d *dialer) connect(ctx context.Context, key service.Key, b balancer, client netip.Addr, trace *trace) (attempt, error) {
	ctx, cancel := context.WithTimeout(ctx, d.dial)
	results := make(chan attempt)
	var tried, pending []netip.AddrPort // both in the order of their start
	began := make(map[netip.AddrPort]time.Time)
	next := func() bool {
		if len(tried) == maxAttempts {
			return false
		}
		endpoint, ok := trace.pick(b, client, tried)
		if !ok {
			return false
		}
		tried = append(tried, endpoint)
		pending = append(pending, endpoint)
		began[endpoint] = time.Now()
		go d.attempt(ctx, ownDial{foundLoop: foundLoop{key, endpoint}, group: b}, results)
		return true
	}
	defer func() { // attempts that were outrun end with their context
		cancel()
		for range pending {
			if late := <-results; late.conn != nil {
				d.close(late)
			}
		}
	}()

	if !next() {
		return attempt{}, errNoEndpoint
	}
	fallback := time.NewTimer(d.fallback)
	defer fallback.Stop()
	var errs *multierror.Error
	for len(pending) > 0 {
		select {
		case <-fallback.C:
			if next() {
				fallback.Reset(d.fallback)
			}
		case a := <-results:
			at := slices.Index(pending, a.endpoint)
			pending = slices.Delete(pending, at, at+1)
			if a.err == nil && d.own.hasComeBack(a.own) {
				d.close(a)
				a.err = errOwnDial
			}
			if a.err == nil {
				for i, outrun := range pending {
					if trace != nil {
						trace.outrun(outrun, time.Since(began[outrun]))
					}
					if i < at { // it had more time
						b.Failed(outrun)
					}
				}
				b.Succeeded(client, a.endpoint)
				return a, nil
			}
			d.metrics.dialFailed(a.err)
			if trace != nil {
				trace.dialFailed(a.endpoint, time.Since(began[a.endpoint]), a.err)
			}
			errs = multierror.Append(errs, fmt.Errorf("endpoint %v: %w", a.endpoint, a.err))
			if !isLocal(a.err) {
				b.Failed(a.endpoint)
			}
			if ctx.Err() == nil && next() {
				fallback.Reset(d.fallback)
			}
		}
	}
	return attempt{}, errs.ErrorOrNil()
}

// close is for a connection that was made.
func (d *dialer) close(a attempt) {
	_ = a.conn.Close()
	d.own.remove(a.own) // now that it can come back no more
}

func (d *dialer) attempt(ctx context.Context, to ownDial, results chan<- attempt) {
	endpoint := to.endpoint
	d.metrics.dials.Inc()
	nd := net.Dialer{
		KeepAlive:       -1, // as keepAliveConfig says, no default
		KeepAliveConfig: keepAliveConfig(d.keepAlive),
	}
	connect := func() (*net.TCPConn, error) {
		conn, err := nd.DialContext(ctx, "tcp", endpoint.String())
		if err != nil {
			return nil, err
		}
		return conn.(*net.TCPConn), nil
	}
	a := attempt{endpoint: endpoint}
	if d.own.isHere(endpoint.Addr()) {
		a.own = &to
		a.conn, a.err = d.under.dial(a.own, connect)
	} else {
		a.conn, a.err = connect()
	}
	results <- a
}

func keepAliveConfig(d time.Duration) net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: d > 0, Idle: d, Interval: d, Count: keepAliveProbes}
}
