package apiserver

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// calls are the requests that a reflector of client-go makes for a resource,
// one at a time. They stand between it and the server for what it does not do
// by itself:
//
//   - They know how the last request went, also where the reflector only tries
//     again in silence.
//   - They break off a request that has been silent for long, where the transport
//     would wait for ever.
//   - They have it list the newest state after an outage. A reflector that could
//     not connect goes on to watch from the resource version that it had. If the
//     server was restored from a backup meanwhile, that version is one of another
//     history: the watch would show nothing, and what is gone would stay.
type calls struct {
	resource
	told func() // something may have changed; does not block

	mu       sync.Mutex
	breakOff context.CancelCauseFunc // ends the request that is open
	stream   error                   // why there is no watch; nil while there is one, and before the first try
	watching bool                    // the request that is open is a watch that the server has let in
	check    error                   // how the last check failed; nil: it did not
	heard    time.Time               // when that request began, or last brought something
	anew     bool                    // there was an outage since the last list
}

// errBrokenOff is the cause that requests are broken off with.
var errBrokenOff = errors.New("broken off")

// listerWatcher is the calls as reflectors take them.
func (c *calls) listerWatcher(client kubernetes.Interface) cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: c.listAll, WatchFuncWithContext: c.open,
	}, client)
}

// listAll lists. A page that follows another is a call of its own.
func (c *calls) listAll(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if c.mustListAnew() && o.Continue == "" {
		o.ResourceVersion, o.ResourceVersionMatch = newest, ""
	}
	ctx = c.begin(ctx)
	list, err := c.list(ctx, c.selected(o))
	if err != nil {
		c.failed(ctx, err)
		return nil, err
	}
	c.mu.Lock()
	c.anew = false
	c.mu.Unlock()
	return list, nil
}

// open begins a watch, be it one that lists first.
func (c *calls) open(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	lists := o.SendInitialEvents != nil && *o.SendInitialEvents
	if c.mustListAnew() {
		if !lists {
			return nil, apierrors.NewResourceExpired("there was an outage since the last list")
		}
		o.ResourceVersion = newest
	}
	ctx = c.begin(ctx)
	w, err := c.watch(ctx, c.selected(o))
	if err != nil {
		// A server that does not list by watching refuses that, and is asked for
		// a list next.
		if refused := isStatus(err); !lists || !refused {
			c.failed(ctx, err)
		}
		if !isStatus(err) {
			err = &unreachableError{err}
		}
		return nil, err
	}
	c.mu.Lock()
	c.anew, c.watching = false, true
	c.stream, c.check = nil, nil // what the last check found is older than this
	c.mu.Unlock()
	c.told()
	return listen(w, c.hear), nil
}

// newest is the resource version that stands for the newest state there is.
const newest = ""

func (c *calls) mustListAnew() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.anew
}

// begin is the context of a new request. The one before has ended.
func (c *calls) begin(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.breakOff != nil {
		c.breakOff(nil)
	}
	c.breakOff, c.heard, c.watching = cancel, time.Now(), false
	return ctx
}

// hear notes that the open request has brought something.
func (c *calls) hear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = time.Now()
}

// failed notes how a request failed, if that says anything about the server.
func (c *calls) failed(ctx context.Context, err error) {
	if ctx.Err() != nil || isBehind(err) { // somebody else ended it, or a list follows
		return
	}
	c.mu.Lock()
	c.stream = err
	c.anew = c.anew || !isStatus(err)
	c.mu.Unlock()
	c.told()
}

// interrupt breaks off what is open and has everything listed anew. Its caller
// holds mu.
func (c *calls) interrupt(why error) {
	c.stream, c.anew = why, true
	if c.breakOff != nil {
		c.breakOff(errBrokenOff)
	}
}

// look asks the server for its newest state, of which one object is enough. It
// says whether the server is there, answers from its store, and lets us in, and
// whether its history is still the one that has led to the state that is known.
//
// Without an answer it only says so, as long as the request that is open brings
// something: a server that has too much to do to answer would have more to do if
// everything were listed anew. One that has brought nothing for the time of patience
// is broken off.
func (c *calls) look(ctx context.Context, known string, patience time.Duration) {
	list, err := c.list(ctx, c.selected(metav1.ListOptions{Limit: 1, ResourceVersion: newest}))
	if err != nil && errors.Is(context.Cause(ctx), context.Canceled) {
		return // nobody waits for the answer
	}
	unanswered := err != nil && !isStatus(err)
	if unanswered && ctx.Err() != nil {
		err = errNoAnswer
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.check = err
	if unanswered && !c.watching {
		c.stream = err
	}
	silent := time.Since(c.heard) > patience
	switch {
	case err == nil && isOlder(list, known):
		c.interrupt(errOtherHistory)
	case unanswered && silent:
		c.interrupt(err)
	case silent && c.breakOff != nil: // where a server has no bookmarks, a new watch costs little
		c.breakOff(errBrokenOff)
	}
}

// isOlder says whether a list is of an older state than one that was known
// before. Versions that are not known, or no numbers, tell nothing.
func isOlder(list runtime.Object, known string) bool {
	m, err := meta.ListAccessor(list)
	if err != nil {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(m.GetResourceVersion(), known)
	return err == nil && order < 0
}

// failing is why what is known may be out of date; nil where it is not.
func (c *calls) failing() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stream != nil {
		return c.stream
	}
	return c.check
}

var (
	errNoAnswer     = errors.New("the server does not answer")
	errOtherHistory = errors.New("the server has an older state than it had before; listing anew")
)

// unreachableError hides from a reflector that a connection was refused, since it
// would go on from where it was.
type unreachableError struct{ err error }

func (e *unreachableError) Error() string { return e.err.Error() }

// isStatus says whether an error is an answer of the server.
func isStatus(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// isBehind says whether a request asked for a state that the server no longer
// has, or does not have yet.
func isBehind(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}
