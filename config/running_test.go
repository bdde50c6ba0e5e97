package config

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	logrustest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"
)

// Time in most of these tests is synctest's: it stands still while anything
// runs, and synctest.Wait returns when everything waits. So "nobody is called"
// is seen, not guessed after a sleep, and a bubble does not end before all of
// its goroutines have.

// running is a ServiceConfig that runs inside a synctest bubble.
type running struct {
	*ServiceConfig
	hook *logrustest.Hook
	stop context.CancelFunc
	ctx  context.Context
	err  chan error // what Run returned
}

// build makes a ServiceConfig for a bubble; the caller adds to it, then runs it.
func build(t *testing.T, opts Options) *running {
	t.Helper()
	log, hook := logrustest.NewNullLogger()
	ctx, stop := context.WithCancel(t.Context())
	return &running{ServiceConfig: New(log, opts), hook: hook, stop: stop, ctx: ctx, err: make(chan error, 1)}
}

func (r *running) run() { go func() { r.err <- r.Run(r.ctx) }() }

// end ends Run and waits until all of it has ended.
func (r *running) end(t *testing.T) {
	t.Helper()
	r.stop()
	require.NoError(t, <-r.err)
}

func (r *running) logged() []string {
	var l []string
	for _, e := range r.hook.AllEntries() {
		l = append(l, fmt.Sprintf("%v %v: %s", e.Level, e.Data["source"], e.Message))
	}
	return l
}

// recorder is a handler that keeps what it was told.
type recorder struct {
	mu   sync.Mutex
	seen []Snapshot
}

func (r *recorder) OnUpdate(s Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, s)
}

func (r *recorder) calls() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seen)
}

func (r *recorder) last() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.seen) == 0 {
		return "never called"
	}
	return dumpSnapshot(r.seen[len(r.seen)-1])
}

func sendServices(to Updates, op Operation, refs ...string) {
	to.Services <- ServiceUpdate{Op: op, Services: servicesNamed(refs...)}
}

func sendSlices(to Updates, op Operation, refs ...string) {
	to.Endpoints <- EndpointsUpdate{Op: op, Slices: slicesNamed(refs...)}
}

// deliver sends a source's first full state and waits for what comes of it.
func deliver(to Updates) {
	sendServices(to, SET)
	sendSlices(to, SET)
	synctest.Wait()
}
