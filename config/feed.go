package config

import (
	"context"
	"errors"
	"time"

	"github.com/sirupsen/logrus"
)

// HoldLimit is how long an update with More waits for the rest of its change.
// A source sends both parts back to back, so the limit is only met by one that
// is broken, and then half a change, which its next update mends, is better
// than none.
const HoldLimit = time.Second

// feed is one source's way in: its channels and the goroutine that reads them.
type feed struct {
	name      string
	source    Source // nil: somebody else runs it
	services  chan ServiceUpdate
	endpoints chan EndpointsUpdate
	status    chan SourceStatus
	ended     chan error // what source.Run returned
	contents  *contents  // guarded by ServiceConfig.mu
}

func newFeed(name string, source Source, in *contents) *feed {
	return &feed{
		name:      name,
		source:    source,
		services:  make(chan ServiceUpdate),
		endpoints: make(chan EndpointsUpdate),
		status:    make(chan SourceStatus),
		ended:     make(chan error),
		contents:  in,
	}
}

func (f *feed) updates() Updates {
	return Updates{Services: f.services, Endpoints: f.endpoints, Status: f.status}
}

func (f *feed) log(to logrus.FieldLogger) logrus.FieldLogger { return to.WithField("source", f.name) }

// receive reads a source's channels until ctx ends. Updates with More are kept
// aside, so that neither handlers nor other sources' updates show half of a
// change. The change is whole with the source's next update without More,
// whatever its channel. What never becomes whole is taken as it is when
// HoldLimit has passed, or when the source ends.
func (c *ServiceConfig) receive(ctx context.Context, f *feed, fail context.CancelCauseFunc) {
	var held change
	var overdue <-chan time.Time
	for {
		more := false
		select {
		case <-ctx.Done():
			return
		case u := <-f.services:
			held.services = append(held.services, u)
			more = u.More
		case u := <-f.endpoints:
			held.endpoints = append(held.endpoints, u)
			more = u.More
		case <-overdue:
			f.log(c.log).Warnf("the source announced more of a change and did not send it within %v", HoldLimit)
		case s := <-f.status:
			c.report(f, s)
			continue
		case err := <-f.ended:
			if overdue != nil {
				c.apply(f, held)
				held, overdue = change{}, nil
			}
			c.sourceEnded(f, err, fail)
			continue
		}
		switch {
		case !more:
			c.apply(f, held)
			held, overdue = change{}, nil
		case overdue == nil:
			overdue = time.After(HoldLimit)
		}
	}
}

// runSource runs a source and hands its end to receive, which by then has read
// all that the source sent.
func (c *ServiceConfig) runSource(ctx context.Context, f *feed) {
	err := f.source.Run(ctx, f.updates())
	if ctx.Err() == nil {
		select {
		case f.ended <- err:
			return
		case <-ctx.Done():
		}
	}
	if err != nil && !errors.Is(err, ctx.Err()) {
		f.log(c.log).WithError(err).Warn("the source did not end cleanly")
	}
}

// sourceEnded deals with a source that returned though nobody asked it to.
func (c *ServiceConfig) sourceEnded(f *feed, err error, fail context.CancelCauseFunc) {
	if err == nil {
		err = errors.New("ended though nobody asked it to")
	}
	c.mu.Lock()
	delivered := f.contents.delivered()
	if delivered {
		c.store.end(f.contents, err)
	}
	c.mu.Unlock()
	if !delivered {
		fail(&SourceError{Source: f.name, Err: err})
		return
	}
	f.log(c.log).WithError(err).Error("the source has failed for good; its last state is still served")
}

// report takes in what a source says about itself. It wakes no handler: what
// is to be served has not changed. Whoever shows it to people asks Snapshot.
func (c *ServiceConfig) report(f *feed, s SourceStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.store.report(f.contents, s)
}
