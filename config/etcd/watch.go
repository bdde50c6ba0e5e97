package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// watch gathers what becomes of the keys in all directories behind a revision.
// A key that changes again before it was taken is one change.
//
// A stream may stay silent because nothing changes, or because something is
// wrong. So every now and then a check reads the head of history, by the way
// that only a cluster in order can answer, and has the stream say when it has
// told everything up to there.
type watch struct {
	client *client
	stream pb.Watch_WatchClient
	cancel context.CancelFunc
	ended  sync.WaitGroup
	news   chan struct{} // capacity 1: there is something to take

	mu       sync.Mutex
	heard    heard
	whole    int64 // everything up to this revision was heard
	unproven []check
}

// heard is what there is to take of a watch.
type heard struct {
	changed  map[string]*mvccpb.Event // the newest of each key
	revision int64                    // the newest that is known of
	checked  time.Time                // when everything that there was is known; zero: never yet
	failing  error                    // why the last check failed
	ended    error                    // why nothing more will be heard
}

// check is a look at the head of history.
type check struct {
	asked    time.Time
	revision int64
}

// mostUnproven is how many checks may wait for the stream to catch up.
const mostUnproven = 16

// errCompacted says that the servers have forgotten what was to be heard.
var errCompacted = errors.New("the servers have compacted away changes that were not heard yet")

// watchFrom hears of everything behind a revision, and checks that it does,
// until ctx ends or stop is called. Whoever gets a watch must stop it.
func (c *client) watchFrom(ctx context.Context, directories []directory, revision int64, every time.Duration) (*watch, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := c.watchStream(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	w := &watch{client: c, stream: stream, cancel: cancel, news: make(chan struct{}, 1), whole: revision}
	w.heard.changed, w.heard.revision = map[string]*mvccpb.Event{}, revision
	w.create(directories, revision+1)
	w.ended.Go(w.listen)
	w.ended.Go(func() { w.checkEvery(ctx, every, directories) })
	return w, nil
}

// stop ends the watch and waits for it.
func (w *watch) stop() {
	w.cancel()
	w.ended.Wait()
}

// take returns what was heard since the last call.
func (w *watch) take() heard {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.unproven) > 0 && w.unproven[0].revision <= w.whole {
		w.heard.checked = w.unproven[0].asked
		w.unproven = w.unproven[1:]
	}
	taken := w.heard
	w.heard.changed = map[string]*mvccpb.Event{}
	return taken
}

func (w *watch) wake() {
	select {
	case w.news <- struct{}{}:
	default: // somebody is to look already
	}
}

// create asks for a watch on each directory.
func (w *watch) create(directories []directory, from int64) {
	for _, d := range directories {
		w.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
			Key: []byte(d.path), RangeEnd: []byte(d.end()), StartRevision: from,
		}}})
	}
}

// send sends a request. An error ends the stream, and then Recv says why.
func (w *watch) send(r *pb.WatchRequest) { _ = w.stream.Send(r) }

// listen reads the stream to its end.
func (w *watch) listen() {
	for {
		r, err := w.stream.Recv()
		w.mu.Lock()
		if err == nil {
			err = w.hear(r)
		}
		w.end(err)
		w.mu.Unlock()
		w.wake()
		if err != nil {
			return
		}
	}
}

// end notes why nothing more will be heard. Its caller holds mu.
func (w *watch) end(why error) {
	if w.heard.ended == nil {
		w.heard.ended = why
	}
}

// hear takes one message. Its caller holds mu.
func (w *watch) hear(r *pb.WatchResponse) error {
	if err := w.client.check(r.Header, 0); err != nil {
		return err
	}
	switch {
	case r.CompactRevision != 0:
		return errCompacted
	case r.Canceled:
		return fmt.Errorf("watching keys: %s", r.CancelReason)
	case r.WatchId == clientv3.InvalidWatchID: // the answer to a check, for all directories
		w.whole = r.Header.Revision
	}
	w.heard.revision = max(w.heard.revision, r.Header.Revision)
	for _, e := range r.Events {
		w.heard.changed[string(e.Kv.Key)] = e
	}
	return nil
}

// checkEvery checks now and then until ctx ends.
func (w *watch) checkEvery(ctx context.Context, every time.Duration, directories []directory) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			w.check(ctx, directories)
		}
	}
}

func (w *watch) check(ctx context.Context, directories []directory) {
	w.mu.Lock()
	known := w.heard.revision
	w.mu.Unlock()
	asked := time.Now()
	head, err := w.client.head(ctx, directories, known)

	w.mu.Lock()
	w.heard.failing = err
	switch {
	case errors.Is(err, errBackwards), errors.Is(err, errOtherCluster):
		w.end(err)
	case err == nil:
		if len(w.unproven) == mostUnproven {
			w.unproven = w.unproven[1:]
		}
		w.unproven = append(w.unproven, check{asked, head})
	}
	w.mu.Unlock()
	if err == nil {
		w.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
	}
	w.wake()
}
