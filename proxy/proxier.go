package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/userspace-proxy/userspace-proxy/loadbalancer"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// Proxier makes the service ports it is told of be served. Update and Status
// may be called at any time, by anyone; Reconcile, Drain, Yield and Close one after
// the other.
type Proxier struct {
	config  Config
	shared  *shared
	numbers *portRange
	tracked *tracking
	trigger chan struct{} // capacity 1: something is to be done

	mu       sync.Mutex
	desired  []service.Port // newest, whole
	complete bool           // nothing but desired is wanted
	update   uint64         // counts Updates
	queued   time.Time      // when something was last asked for
	waiting  time.Time      // since when something is to be done that is not done; zero where all is
	status   syncStatus

	ports   map[service.Key]*servicePort // what is served; Reconcile's own, changed under mu
	claims  *claims                      // Reconcile's own
	recall  Memory                       // what the process knew that served before; Reconcile's own
	retired sync.WaitGroup               // listeners that were replaced and accept on for a moment
	running context.Context              // ends when they need not any more
	stopped context.CancelFunc
}

// syncStatus is how the last reconcile went.
type syncStatus struct {
	problems []service.Problem
	err      error
	at       time.Time // when listeners and rules were last as desired
	update   uint64    // that they were as of
	damaged  uint64    // counts times that somebody has changed the rules
	mended   uint64    // up to which of them they are in force again
	restored int       // times that rules are in force again that somebody had changed
}

// New makes a Proxier of a configuration, of which defaults are filled in. It has
// started its loops when it returns, so whoever gets one must Close it.
func New(c Config) (*Proxier, error) {
	c.Defaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics(prometheus.NewRegistry()) // that nobody reads
	}
	budget, warn := newBudget(c.Descriptors, engineDescriptors()), newLimiter(10*time.Second)
	c.Metrics.descriptors.Store(budget)
	common := &shared{
		log: c.Log, warn: warn, metrics: c.Metrics, budget: budget, mark: c.Mark, transparent: c.Transparent,
		accounts: newAccounts(), tracer: newTracer(c.Trace, c.Log), limits: newLimits(c.MaxConnections, c.MaxPerClient), own: newOwnDials(),
		timeouts: tcpTimeouts{
			dial: c.DialTimeout, fallback: c.FallbackDelay, halfClose: c.HalfCloseTimeout,
			idle: c.IdleTimeout, keepAlive: c.KeepAlive,
		},
		udpIdle: c.UDPTimeout,
	}
	common.udp = newUDPFlows(udpFlowsConfig{
		limit: newFlowBudget(budget, c.MaxUDPFlows), senderOf: common.senderOf, counters: c.Metrics.udp, warn: warn,
	})
	var err error
	if common.tcp, err = newTCPEngine(common); err != nil {
		return nil, fmt.Errorf("start the TCP engine: %w", err)
	}
	p := &Proxier{
		config:  c,
		shared:  common,
		numbers: newPortRange(c.Ports),
		tracked: newTracking(c),
		trigger: make(chan struct{}, 1),
		ports:   make(map[service.Key]*servicePort),
		claims:  newClaims(),
	}
	common.wake = p.wake
	common.pods.Store(&service.LocalPods{})
	p.tracked.isHere = common.own.isHere
	p.running, p.stopped = context.WithCancel(context.Background())
	c.Metrics.perPort.Store(p)
	return p, nil
}

// Update tells what is to be served: all of it, each Key once. While complete
// is false not every source has been heard, and what is served already and not
// among ports is served on. It returns at once.
func (p *Proxier) Update(ports []service.Port, complete bool) {
	p.mu.Lock()
	p.desired, p.complete = ports, complete
	p.update++
	p.ask()
	p.mu.Unlock()
	p.wake()
}

// SetLocalPods says how the traffic of pods on this node is told from what comes
// from outside, from the next Update on. Until the first call there is none such.
func (p *Proxier) SetLocalPods(l service.LocalPods) { p.shared.pods.Store(&l) }

// ask notes that something is to be done. Its caller holds mu.
func (p *Proxier) ask() {
	p.queued = time.Now()
	if p.waiting.IsZero() {
		p.waiting = p.queued
	}
}

func (p *Proxier) wake() {
	select {
	case p.trigger <- struct{}{}:
	default: // the one that waits will see this too
	}
}

// Reconcile reconciles at every Update, at every sync period, and after a failure
// with growing pauses, until ctx ends. What is served then is served on, as it was
// last.
func (p *Proxier) Reconcile(ctx context.Context) {
	const firstRetry = time.Second
	next := time.NewTimer(p.config.SyncPeriod)
	defer next.Stop()
	retry, look := firstRetry, firstRetry // after an error, and where there are problems
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.trigger:
		case <-next.C:
		}
		if !p.isTold() { // what rules there are stay, until it is known what is wanted
			next.Reset(p.config.SyncPeriod)
			continue
		}
		started := time.Now()
		wait := p.config.SyncPeriod
		switch err := p.sync(ctx); {
		case err != nil && ctx.Err() == nil:
			p.config.Log.WithError(err).Errorf("cannot reconcile, trying again in %v; what was served is served on", retry)
			wait, retry = retry, min(2*retry, p.config.SyncPeriod)
		case p.hasProblems(): // a port may be free, a descriptor given back
			wait, look = look, min(2*look, p.config.SyncPeriod)
			retry = firstRetry
		default:
			retry, look = firstRetry, firstRetry
		}
		next.Reset(wait)
		pause(ctx, p.config.MinSyncPeriod-time.Since(started))
	}
}

// isTold says whether there has been an Update.
func (p *Proxier) isTold() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.update > 0
}

// hasProblems says whether something could not be opened at the last reconcile.
func (p *Proxier) hasProblems() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.status.problems) > 0
}

// sync makes listeners and rules as desired: open, redirect, close.
func (p *Proxier) sync(ctx context.Context) error {
	started := time.Now()
	desired, complete, update := p.wanted(started)

	problems, openErr := p.open(desired)
	stale, redirectErr := p.redirect(ctx, desired)
	if service.Applied(redirectErr) && complete {
		p.close(desired)
		p.recall = Memory{}
	}

	err := errors.Join(openErr, redirectErr)
	p.report(append(problems, stale...), err, started, update)
	if p.config.AfterSync != nil {
		p.config.AfterSync()
	}
	return err
}

// wanted is what to serve: what is desired, and until that is complete also what is
// served already, here or by who served before; and as of which Update. From now on it is being done.
func (p *Proxier) wanted(now time.Time) (desired map[service.Key]service.Port, complete bool, update uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting.IsZero() { // nobody asked: the sync period did
		p.waiting = now
	}
	desired = make(map[service.Key]service.Port, len(p.desired))
	if !p.complete {
		taken := portalsOf(p.desired)
		keep := func(stale service.Port) {
			stale.Portals = slices.DeleteFunc(slices.Clone(stale.Portals), func(portal service.Portal) bool {
				return taken[claim{stale.Protocol, portal.Addr}]
			})
			desired[stale.Key] = stale
		}
		for _, port := range p.recall.Served {
			keep(port)
		}
		for _, s := range p.ports {
			keep(s.spec)
		}
	}
	for _, port := range p.desired {
		desired[port.Key] = port
	}
	return desired, p.complete, p.update
}

// portalsOf are the portals of all ports.
func portalsOf(ports []service.Port) map[claim]bool {
	all := make(map[claim]bool)
	for _, port := range ports {
		for _, portal := range port.Portals {
			all[claim{port.Protocol, portal.Addr}] = true
		}
	}
	return all
}

// open gives every desired port its listeners, serving or held as it has
// endpoints or none. What cannot be opened is a problem and gets no redirect;
// the error is of failures that another try may mend.
func (p *Proxier) open(desired map[service.Key]service.Port) ([]service.Problem, error) {
	var problems []service.Problem
	var errs []error
	idle, problem := p.tracked.flowIdle(p.config.UDPTimeout)
	p.shared.udpIdle = idle
	p.numbers.again()
	p.shared.own.look()
	if p.config.Rules != nil {
		problems = p.claims.claim(p.shared.budget, p.shared.own.isHere, desired)
	} else {
		p.vacate(desired)
	}
	if problem != nil {
		problems = append(problems, *problem)
	}
	problems = append(problems, p.shared.own.problems(desired)...)
	for _, key := range sortedKeys(desired) {
		s := p.port(key)
		found, err := s.update(p, desired[key])
		problems = append(problems, found...)
		if err != nil {
			errs = append(errs, err)
		}
	}
	return problems, errors.Join(errs...)
}

// vacate closes listeners on portals that are another service port's now.
// Without rules the next cannot open before the last has closed.
func (p *Proxier) vacate(desired map[service.Key]service.Port) {
	owner := make(map[claim]service.Key)
	for key, port := range desired {
		for _, portal := range port.Portals {
			owner[claim{key.Protocol, portal.Addr}] = key
		}
	}
	for key, s := range p.ports {
		s.closeWhere(p, func(at place) bool {
			next, ok := owner[claim{key.Protocol, at.portal}]
			return ok && next != key
		})
	}
}

// port is the served port of that key, made where there is none.
func (p *Proxier) port(key service.Key) *servicePort {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.ports[key]
	if s == nil {
		s = newServicePort(key, loadbalancer.NewGroup(time.Now))
		p.ports[key] = s
	}
	return s
}

// redirect leads every portal that can be served to its listener, clients that
// send already too. Those that cannot be led anew are a problem.
func (p *Proxier) redirect(ctx context.Context, desired map[service.Key]service.Port) ([]service.Problem, error) {
	if p.config.Rules == nil {
		return nil, nil
	}
	var redirects []service.Redirect
	for _, key := range sortedKeys(desired) {
		redirects = append(redirects, p.ports[key].redirects(p)...)
	}
	p.tracked.begin()
	damage := p.damage() // what comes while Sync runs may undo what it has done
	pods := *p.shared.pods.Load()
	p.config.Rules.SetLocalPods(pods)
	err := p.config.Rules.Sync(ctx, redirects)
	if err != nil {
		err = fmt.Errorf("apply %d redirects: %w", len(redirects), err)
	}
	if !service.Applied(err) {
		return nil, err
	}
	p.restored(damage)
	clean, trackErr := p.tracked.follow(redirects, pods, p.served(desired), p.numbers.hasResting)
	for _, place := range clean {
		p.numbers.wake(place)
	}
	if trackErr != nil {
		return []service.Problem{p.tracked.problem(trackErr)}, err
	}
	return nil, err
}

// served is where the UDP listeners of these ports are.
func (p *Proxier) served(ports map[service.Key]service.Port) map[netip.AddrPort]bool {
	all := make(map[netip.AddrPort]bool)
	for key := range ports {
		for _, l := range p.ports[key].listeners {
			if key.Protocol == service.UDP {
				all[l.addr()] = true
			}
		}
	}
	return all
}

// close lets go of what no redirect leads to any more.
func (p *Proxier) close(desired map[service.Key]service.Port) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, s := range p.ports {
		if _, ok := desired[key]; ok {
			s.closeStale(p)
			continue
		}
		s.closeAll(p)
		delete(p.ports, key)
	}
	p.claims.release(p.shared.budget, desired)
	p.shared.limits.forget(p.ports)
	p.shared.accounts.forget(p.ports)
}

func (p *Proxier) report(problems []service.Problem, err error, started time.Time, update uint64) {
	slices.SortFunc(problems, service.Problem.Compare)
	m := p.shared.metrics
	m.syncSeconds.Observe(time.Since(started).Seconds())
	known := make(map[service.Problem]bool)
	for _, problem := range p.Problems() {
		known[problem] = true
	}
	for _, problem := range problems {
		if !known[problem] {
			p.config.Log.Warn(problem) // while nobody waits for the lock: a log may be slow
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	m.ports.Set(float64(len(p.ports)))
	p.status.problems, p.status.err = problems, err
	if err != nil {
		m.syncFailures.Inc()
		return
	}
	p.status.at, p.status.update = time.Now(), update
	if p.waiting = p.queued; !p.queued.After(started) { // nothing was asked for meanwhile
		p.waiting = time.Time{}
	}
}
