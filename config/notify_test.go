package config

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"testing/synctest"
	"time"

	logrustest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/service"
)

func TestServiceConfigWakesHandlersForTheirKinds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := build(t, Options{})
		var ofServices, ofEndpoints, ofBoth recorder
		a, b := r.AddSource("a"), r.AddSource("b")
		r.Register(ServiceKind, &ofServices)
		r.Register(EndpointsKind, &ofEndpoints)
		r.Register(ServiceKind|EndpointsKind, &ofBoth)
		r.run()
		deliver(a)
		deliver(b)
		calls := func() []int {
			synctest.Wait()
			return []int{ofServices.calls(), ofEndpoints.calls(), ofBoth.calls()}
		}
		require.Equal(t, []int{1, 1, 1}, calls(), "completion concerns everyone")

		sendServices(a, ADD, "default/a")
		require.Equal(t, []int{2, 1, 2}, calls())
		sendSlices(a, ADD, "default/a-1 of a")
		require.Equal(t, []int{2, 2, 3}, calls())
		sendSlices(b, ADD, "default/a-2 of a")
		require.Equal(t, []int{2, 3, 4}, calls())
		sendServices(a, SET)
		require.Equal(t, []int{3, 4, 5}, calls(), "the Service's going decides anew whose endpoints count")
		a.Status <- SourceStatus{Problems: []service.Problem{{Object: "file x"}}}
		require.Equal(t, []int{3, 4, 5}, calls(), "what a source says about itself changes nothing that is served")
		require.Equal(t, lines(
			"Endpoints default/a from a: default/a-1",
			"Problem file x: ",
			"complete"), dumpSnapshot(r.Snapshot()), "but it is there to be shown")
		require.Equal(t, lines(
			"Endpoints default/a from a: default/a-1",
			"complete"), ofServices.last(), "whatever woke it, a handler gets all there is")
		r.end(t)
	})
}

// gated is a handler that is slow: each call waits for a token.
type gated struct {
	recorder
	begun chan struct{} // gets one for each call that has begun
	token chan struct{}
}

func newGated() *gated {
	return &gated{begun: make(chan struct{}, 1), token: make(chan struct{})}
}

func (g *gated) OnUpdate(s Snapshot) {
	g.begun <- struct{}{}
	<-g.token
	g.recorder.OnUpdate(s)
}

func TestCase35_ManyChangesWhileAHandlerIsBusyAreOneCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		r := build(t, Options{})
		var quick recorder
		slow := newGated()
		src := r.AddSource("src")
		r.Register(ServiceKind|EndpointsKind, slow)
		r.Register(ServiceKind|EndpointsKind, &quick)
		r.run()
		deliver(src)
		<-slow.begun

		for i := range n {
			sendServices(src, ADD, fmt.Sprintf("default/s%05d", i))
		}
		synctest.Wait()
		require.Len(t, r.Snapshot().Services, n, "a busy handler holds up no source")
		require.Equal(t, n, lastNames(t, &quick), "and no other handler")

		slow.token <- struct{}{} // the call it was in
		<-slow.begun
		slow.token <- struct{}{} // one for all that came meanwhile
		synctest.Wait()
		require.Equal(t, 2, slow.calls())
		require.Empty(t, slow.seen[0].Services)
		require.Len(t, slow.seen[1].Services, n)
		r.end(t)
	})
}

// lastNames says how many Services a handler knew of last, and checks that it
// never saw fewer than before: order is not changed.
func lastNames(t *testing.T, r *recorder) int {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, s := range r.seen {
		require.GreaterOrEqual(t, len(s.Services), n)
		n = len(s.Services)
	}
	return n
}

func TestServiceConfigNeverLosesTheLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := build(t, Options{})
		slow := newGated()
		src := r.AddSource("src")
		r.Register(ServiceKind, slow)
		r.run()
		deliver(src)
		for i := range 100 {
			<-slow.begun
			version := fmt.Sprintf("default/a@%d", i)
			sendServices(src, ADD, "default/a@skipped")
			sendServices(src, ADD, version)
			synctest.Wait()
			slow.token <- struct{}{}
			synctest.Wait()
		}
		<-slow.begun
		slow.token <- struct{}{}
		synctest.Wait()
		require.Equal(t, 101, slow.calls())
		for i, s := range slow.seen[1:] {
			require.Equal(t, lines(fmt.Sprintf("Service default/a@%d from src", i), "complete"), dumpSnapshot(s))
		}
		r.end(t)
	})
}

// What comes between a handler's waking and its looking is in what it sees, so
// it need not be woken for it once more.
func TestLookingAnswersWhatCameMeanwhile(t *testing.T) {
	t.Parallel()
	log, _ := logrustest.NewNullLogger()
	c := New(log, Options{})
	s := newSubscription(ServiceKind, &recorder{})
	s.wake()
	s.wake()
	c.take(s)
	require.Empty(t, s.trigger)
}

// A handler that panics ends the process, with the handler in the stack. The
// test runs itself once more as the process that is to end.
func TestCase40_APanicInAHandlerIsNotSwallowed(t *testing.T) {
	t.Parallel()
	if os.Getenv("CONFIG_TEST_PANIC") != "" {
		log, _ := logrustest.NewNullLogger()
		c := New(log, Options{})
		c.Register(ServiceKind, HandlerFunc(func(Snapshot) { panic("a handler's fault") }))
		_ = c.Run(t.Context())
		return // with 0: the panic was lost
	}
	self, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "CONFIG_TEST_PANIC=1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "%s", out)
	require.Equal(t, 2, exit.ExitCode(), "%s", out)
	require.Contains(t, string(out), "panic: a handler's fault")
	require.Contains(t, string(out), "(*ServiceConfig).notify", "the stack says who called it")
}

func TestRunWaitsForTheCallAHandlerIsIn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := build(t, Options{})
		slow := newGated()
		src := r.AddSource("src")
		r.Register(ServiceKind, slow)
		r.run()
		deliver(src)
		<-slow.begun
		sendServices(src, ADD, "default/a")
		r.stop()
		synctest.Wait()
		require.Empty(t, r.err, "Run has not returned")
		slow.token <- struct{}{}
		require.NoError(t, <-r.err)
		require.Equal(t, 1, slow.calls(), "no further call once ctx has ended")
	})
}
