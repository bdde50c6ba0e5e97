package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/userspace-proxy/userspace-proxy/config"
)

// Source feeds the Services in an etcd to a ServiceConfig. It is a
// config.Source. Its Run is for once.
type Source struct {
	name    string
	options Options
	state   *state
	outage  config.Outage

	delivered bool
	revision  int64     // the newest of the history that state is of
	checked   time.Time // when state was last found to be all that there is
}

var _ config.Source = (*Source)(nil)

// New makes a source. Nothing is asked of the servers before Run; what is wrong
// with the options and their files is an error, all of it at once.
func New(name string, o Options) (*Source, error) {
	o.Defaults()
	if err := o.Validate(); err != nil {
		return nil, err // names the flags
	}
	return &Source{
		name: name, options: o, state: newState(o.directories()),
		outage: config.Outage{Of: "etcd", Log: o.Log},
	}, nil
}

// Name is how people know the source.
func (s *Source) Name() string { return s.name }

const (
	// The time between two attempts to read etcd is doubled each time.
	shortestWait = 100 * time.Millisecond
	longestWait  = 10 * time.Second
	// gather is how long changes are waited for that belong to the first one:
	// a Service and its endpoints, or a thousand Pods that end.
	gather = 20 * time.Millisecond
)

// Run sends the state of etcd and then what changes, until ctx ends. Where it
// cannot hear of changes any more it says so and begins anew.
//
// Before the first state is in, it returns an error where the servers refuse
// us, or we them: something is wrong with who they, or we, are said to be.
// Servers that are not there are waited for.
func (s *Source) Run(ctx context.Context, to config.Updates) error {
	wait := shortestWait
	for {
		began := time.Now()
		err := s.options.explain(s.follow(ctx, to))
		if ctx.Err() != nil {
			return nil //nolint:nilerr // that is how Run ends
		}
		var refused *refusedError
		if !s.delivered && errors.As(err, &refused) {
			return err
		}
		if !s.tell(ctx, to, err) {
			return nil
		}
		if time.Since(began) > longestWait { // it went well in between
			wait = shortestWait
		}
		if !sleep(ctx, wait/2+rand.N(wait)) { //nolint:gosec // no secret: all nodes are not to come at once
			return nil
		}
		wait = min(2*wait, longestWait)
	}
}

// follow lists everything, sets it, and passes on what changes. It returns why
// it cannot go on, and with ctx.
func (s *Source) follow(ctx context.Context, to config.Updates) error {
	c, err := s.options.connect()
	if err != nil {
		return err
	}
	defer c.close()
	asked := time.Now()
	all, revision, err := c.list(ctx, s.options.directories())
	if err != nil {
		return err
	}
	if revision < s.revision {
		s.options.Log.Warnf("etcd is at revision %d and was at %d: it was restored from a backup, or holds other data; what it has now is served", revision, s.revision)
	}
	s.state.replace(all)
	s.revision, s.checked, s.delivered = revision, asked, true
	endpoints, services := updates(config.SET, s.state.objects())
	if !to.Send(ctx, []config.EndpointsUpdate{endpoints}, []config.ServiceUpdate{services}) || !s.tell(ctx, to, nil) {
		return ctx.Err()
	}
	w, err := c.watchFrom(ctx, s.options.directories(), revision, s.options.Check)
	if err != nil {
		return err
	}
	defer w.stop()
	return s.pass(ctx, to, w)
}

// pass passes on what a watch hears, to its end.
func (s *Source) pass(ctx context.Context, to config.Updates, w *watch) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.news:
		}
		if !sleep(ctx, gather) {
			return ctx.Err()
		}
		heard := w.take()
		var d delta
		for key, e := range heard.changed {
			if e.Type == mvccpb.Event_DELETE {
				s.state.remove(key, &d)
			} else {
				s.state.put(e.Kv, &d)
			}
		}
		s.revision = heard.revision
		if heard.checked.After(s.checked) {
			s.checked = heard.checked
		}
		if !d.send(ctx, to) {
			return ctx.Err()
		}
		if heard.ended != nil {
			return heard.ended
		}
		if !s.tell(ctx, to, s.options.explain(heard.failing)) {
			return ctx.Err()
		}
	}
}

// tell says how the source is doing: err is why it is failing now. It gives up
// when ctx ends.
func (s *Source) tell(ctx context.Context, to config.Updates, err error) bool {
	s.outage.Tell(err, s.delivered)
	if err != nil {
		err = fmt.Errorf("etcd: %w", err)
	}
	return to.Tell(ctx, config.SourceStatus{Problems: s.state.problems(), Err: err, Checked: s.checked})
}

// sleep sleeps; false: ctx ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
