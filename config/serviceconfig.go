package config

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

// DefaultGrace is how long handlers wait for a late source where Options do not say.
const DefaultGrace = 30 * time.Second

// Options are what a ServiceConfig needs to know beside its sources.
type Options struct {
	// Grace is how long after Run began handlers wait for sources that have
	// not delivered. After it they are told what is known, with Complete
	// false. 0 is DefaultGrace.
	Grace time.Duration
	// Now is the clock that SourceInfo.Updated is read from. nil is time.Now.
	Now func() time.Time
}

// Defaults fills in what was left out.
func (o Options) Defaults() Options {
	if o.Grace == 0 {
		o.Grace = DefaultGrace
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Validate says what is wrong with the options.
func (o Options) Validate() error {
	if o.Grace < 0 {
		return fmt.Errorf("config: the grace for late sources is %v and cannot be negative", o.Grace)
	}
	return nil
}

// ServiceConfig merges what its sources say and tells its handlers.
//
// It is put together first (Add, AddSource, Register), then run once. Putting
// it together wrongly (two sources of one name, a source or a handler that
// comes after Run) is a fault in the program and panics.
type ServiceConfig struct {
	log  logrus.FieldLogger
	opts Options

	feeds         []*feed         // in order of precedence; fixed once running
	subscriptions []*subscription // fixed once running

	mu      sync.Mutex // guards what follows; never held while a source or a handler runs
	running bool
	gate    gate
	store   store
}

// gate says how far handlers may be told of what the store knows.
type gate int

const (
	shut gate = iota // sources are missing and there is still time: nobody is called
	ajar             // sources are missing and their time is over: what is known is told
	open             // every source has delivered
)

// New makes a ServiceConfig without sources and handlers. Options that do not
// hold are returned as an error by Run.
func New(log logrus.FieldLogger, opts Options) *ServiceConfig {
	return &ServiceConfig{log: log, opts: opts.Defaults()}
}

// Add takes a source in, behind those taken in before: where two have a
// Service of one name, the earlier one's is served. Run runs it.
func (c *ServiceConfig) Add(source Source) {
	c.addFeed(source.Name(), source)
}

// AddSource is Add for a source that somebody else runs. It returns the
// channels to feed it by. They are read while Run runs; whoever sends on them
// must give up when the context of Run ends.
func (c *ServiceConfig) AddSource(name string) Updates {
	return c.addFeed(name, nil).updates()
}

func (c *ServiceConfig) addFeed(name string, source Source) *feed {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mustNotRun("a source was added")
	for _, f := range c.feeds {
		if f.name == name {
			panic(fmt.Sprintf("config: two sources are called %q", name))
		}
	}
	f := newFeed(name, source, c.store.addSource(name))
	c.feeds = append(c.feeds, f)
	return f
}

// Register makes h hear of changes to the kinds. It always gets whole
// snapshots; the kinds only say what it is woken for. A handler is not called
// before every source has delivered or Options.Grace has passed.
func (c *ServiceConfig) Register(kinds Kinds, h Handler) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mustNotRun("a handler was registered")
	if kinds&allKinds == 0 {
		panic("config: a handler was registered for no kind")
	}
	c.subscriptions = append(c.subscriptions, newSubscription(kinds, h))
}

func (c *ServiceConfig) mustNotRun(what string) {
	if c.running {
		panic("config: " + what + " after Run")
	}
}

// Run runs the sources and calls the handlers until ctx ends, and returns when
// everything it started has ended: it waits for the call that a handler is in,
// and makes no further one.
//
// It returns nil when ctx ended it, and ends by itself with a *SourceError
// when a source ends before its first full state is in. A source that ends
// later is a problem in the snapshots, and its last state stays in them.
func (c *ServiceConfig) Run(ctx context.Context) error {
	if err := c.opts.Validate(); err != nil {
		return err
	}
	if err := c.start(); err != nil {
		return err
	}
	grace := time.NewTimer(c.opts.Grace)
	defer grace.Stop()

	running, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var all sync.WaitGroup
	for _, s := range c.subscriptions {
		all.Go(func() { c.notify(running, s) })
	}
	for _, f := range c.feeds {
		all.Go(func() { c.receive(running, f, fail) })
		if f.source != nil {
			all.Go(func() { c.runSource(running, f) })
		}
	}
	select {
	case <-grace.C:
		c.graceOver()
		<-running.Done()
	case <-running.Done():
	}
	all.Wait()
	var failed *SourceError
	if errors.As(context.Cause(running), &failed) {
		return failed
	}
	return nil
}

// SourceError says that a source failed before its first full state was in:
// a fault in its configuration.
type SourceError struct {
	Source string // the source's name
	Err    error  // what its Run returned
}

// Error names the source and what it returned.
func (e *SourceError) Error() string { return "source " + e.Source + ": " + e.Err.Error() }

// Unwrap is what the source returned.
func (e *SourceError) Unwrap() error { return e.Err }

// Snapshot is the newest merge, for people and for status. Unlike handlers it
// is not held back by sources that have not delivered.
func (c *ServiceConfig) Snapshot() Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.store.snapshot()
}

// start marks the beginning of Run. Without sources everything is known.
func (c *ServiceConfig) start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running {
		return errors.New("config: Run was called twice")
	}
	c.running = true
	c.tell(0)
	return nil
}

// apply takes a change in. Handlers hear of it when the gate lets them.
func (c *ServiceConfig) apply(f *feed, ch change) {
	c.mu.Lock()
	first := !f.contents.delivered()
	c.tell(c.store.apply(f.contents, ch, c.opts.Now()))
	first = first && f.contents.delivered()
	c.mu.Unlock()
	if first {
		f.log(c.log).Info("the source's first full state is in")
	}
}

// graceOver lets handlers in though sources are missing.
func (c *ServiceConfig) graceOver() {
	c.mu.Lock()
	var missing []*feed
	if c.gate == shut {
		for _, f := range c.feeds {
			if !f.contents.delivered() {
				missing = append(missing, f)
			}
		}
		c.store.outOfTime()
		c.gate = ajar
		c.tell(allKinds)
	}
	c.mu.Unlock()
	for _, f := range missing {
		f.log(c.log).Warnf("the source has not delivered its first full state within %v; going on without it, removing nothing", c.opts.Grace)
	}
}

// tell triggers the handlers that hear of the altered kinds, and all of them
// where this is the moment at which every source has delivered. Its caller
// holds mu.
func (c *ServiceConfig) tell(altered Kinds) {
	if c.gate != open && c.store.complete() {
		c.gate = open
		altered = allKinds
	}
	if c.gate == shut {
		return
	}
	for _, s := range c.subscriptions {
		if s.kinds&altered != 0 {
			s.wake()
		}
	}
}
