package apiserver

import (
	"sync"

	"k8s.io/apimachinery/pkg/watch"
)

// heardWatch is a watch of which it is told when it brings something.
type heardWatch struct {
	watch.Interface
	events  chan watch.Event
	stopped chan struct{}
	stop    func() // for once
}

// listen is a watch that calls heard for every event and bookmark. Whoever has
// it must stop it, as any watch; that ends it.
func listen(w watch.Interface, heard func()) watch.Interface {
	h := &heardWatch{Interface: w, events: make(chan watch.Event), stopped: make(chan struct{})}
	h.stop = sync.OnceFunc(func() {
		close(h.stopped)
		w.Stop()
	})
	go h.pass(heard)
	return h
}

// pass passes events on until there are no more, or the watch is stopped.
func (h *heardWatch) pass(heard func()) {
	defer close(h.events)
	for e := range h.Interface.ResultChan() {
		heard()
		select {
		case h.events <- e:
		case <-h.stopped:
			return
		}
	}
}

// ResultChan has the events.
func (h *heardWatch) ResultChan() <-chan watch.Event { return h.events }

// Stop ends the watch.
func (h *heardWatch) Stop() { h.stop() }
