package loadbalancer

import (
	"time"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// An endpoint rests for firstRest after a failed dial, twice as long after
// each that follows, and never longer than longestRest.
const (
	firstRest   = 1 * time.Second
	longestRest = 30 * time.Second
)

// endpoint is what a group knows of one endpoint from the Update that brings
// it to the Update that leaves it out. One that comes back is a new one.
type endpoint struct {
	service.Endpoint

	in       [sets]bool    // the sets that it is in
	gone     bool          // left out by an Update; affinity that still points here is void
	failures int           // failed dials since the last that worked
	rest     time.Duration // length of the newest rest; 0 if the last dial worked
	until    time.Time     // its end
	onTrial  bool          // it only waits for the outcome of one connection
}

// rests says whether new clients pass the endpoint over.
func (e *endpoint) rests(now time.Time) bool { return now.Before(e.until) }

// keeps says whether the endpoint may have the clients whose affinity it has.
// During a trial it may, else the second of two connections that a client
// opens together would go elsewhere.
func (e *endpoint) keeps(now time.Time) bool { return e.onTrial || !e.rests(now) }

// picked begins a trial where the endpoint has failed and rested. Without it
// every client in turn would wait for an endpoint that swallows packets, from
// the end of its rest until the first of their dials gives up. A trial that
// nobody reports on ends by itself, and the next pick begins another.
func (e *endpoint) picked(now time.Time) {
	if e.rest > 0 && !e.rests(now) {
		e.onTrial, e.until = true, now.Add(e.rest)
	}
}

// failed begins a rest. Dials that were under way when it began and fail
// after it are counted, but do not make it longer: a hundred clients that hit
// one failure together are one failure. It says whether a rest has begun.
func (e *endpoint) failed(now time.Time) bool {
	e.failures++
	if e.rests(now) && !e.onTrial {
		return false
	}
	e.rest = min(max(2*e.rest, firstRest), longestRest)
	e.onTrial, e.until = false, now.Add(e.rest)
	return true
}

// succeeded ends rest and trial.
func (e *endpoint) succeeded() {
	e.failures, e.rest, e.until, e.onTrial = 0, 0, time.Time{}, false
}
