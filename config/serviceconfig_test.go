package config

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	logrustest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/service"
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

func TestServiceConfigMergesItsSources(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := build(t, Options{})
		var h recorder
		first, second := r.AddSource("first"), r.AddSource("second")
		r.Register(ServiceKind|EndpointsKind, &h)
		r.run()

		steps := []struct {
			why   string
			send  func()
			calls int
			want  string
		}{
			{"one source is not all", func() { deliver(first) }, 0, "never called"},
			{"now all have delivered, if only that they have nothing", func() { deliver(second) }, 1, lines("complete")},
			{"a Service", func() { sendServices(second, ADD, "default/a@2") }, 2, lines(
				"Service default/a@2 from second",
				"complete")},
			{"its endpoints", func() { sendSlices(first, ADD, "default/a-1 of a") }, 3, lines(
				"Service default/a@2 from second",
				"Endpoints default/a from first: default/a-1",
				"complete")},
			{"precedence", func() { sendServices(first, SET, "default/a@1") }, 4, lines(
				"Service default/a@1 from first",
				"Endpoints default/a from first: default/a-1",
				"Problem Service default/a: ShadowedBySource",
				"complete")},
			{"a removal shows the other", func() { sendServices(first, REMOVE, "default/a") }, 5, lines(
				"Service default/a@2 from second",
				"Endpoints default/a from first: default/a-1",
				"complete")},
			{"an empty SET clears", func() { sendServices(second, SET) }, 6, lines(
				"Endpoints default/a from first: default/a-1",
				"complete")},
			{"nothing new, nobody is called", func() { sendServices(second, SET) }, 6, lines(
				"Endpoints default/a from first: default/a-1",
				"complete")},
		}
		for _, step := range steps {
			step.send()
			synctest.Wait()
			require.Equal(t, step.want, h.last(), step.why)
			require.Equal(t, step.calls, h.calls(), step.why)
			if step.calls > 0 {
				require.Equal(t, step.want, dumpSnapshot(r.Snapshot()), step.why)
			}
		}
		r.end(t)
	})
}

func TestServiceConfigWithoutSourcesIsCompleteAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := build(t, Options{})
		var h recorder
		r.Register(EndpointsKind, &h)
		r.run()
		synctest.Wait()
		require.Equal(t, lines("complete"), h.last())
		r.end(t)
		require.Equal(t, 1, h.calls())
	})
}

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

func TestCase37_NobodyIsToldBeforeEverySourceHasDelivered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := build(t, Options{Grace: time.Minute})
		var h recorder
		fast, slow := r.AddSource("fast"), r.AddSource("slow")
		r.Register(ServiceKind|EndpointsKind, &h)
		r.run()
		sendServices(fast, SET, "default/a")
		sendSlices(fast, SET, "default/a-1 of a")
		sendServices(slow, SET, "default/b")
		sendSlices(slow, ADD, "default/b-1 of b") // a part of its first list
		time.Sleep(59 * time.Second)
		synctest.Wait()
		require.Zero(t, h.calls(), "all Services, but not all endpoints: nothing may be decided by them")

		sendSlices(slow, SET, "default/b-1 of b", "default/b-2 of b")
		synctest.Wait()
		require.Equal(t, lines(
			"Service default/a from fast",
			"Service default/b from slow",
			"Endpoints default/a from fast: default/a-1",
			"Endpoints default/b from slow: default/b-1 default/b-2",
			"complete"), h.last())

		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, 1, h.calls(), "the grace does not matter any more")
		r.end(t)
		require.Equal(t, []string{
			"info fast: the source's first full state is in",
			"info slow: the source's first full state is in",
		}, r.logged())
	})
}

func TestCase37_AfterTheGraceWhatIsKnownIsToldAndCalledIncomplete(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := build(t, Options{}) // 30 s
		var h recorder
		fast, slow := r.AddSource("fast"), r.AddSource("slow")
		r.Register(ServiceKind, &h)
		r.run()
		deliver(fast)
		sendServices(slow, ADD, "default/b")
		slow.Status <- SourceStatus{Err: errors.New("connection refused")}
		time.Sleep(30*time.Second - time.Nanosecond)
		synctest.Wait()
		require.Zero(t, h.calls())

		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Equal(t, lines(
			"Service default/b from slow",
			"Problem Source slow: SourceNotDelivered",
		), h.last())
		require.Contains(t, r.Snapshot().Problems[0].Detail, "connection refused")
		require.Equal(t, 1, r.Snapshot().Sources[1].Problems)

		sendServices(fast, ADD, "default/a")
		synctest.Wait()
		require.Equal(t, lines(
			"Service default/a from fast",
			"Service default/b from slow",
			"Problem Source slow: SourceNotDelivered",
		), h.last(), "changes are told meanwhile")

		sendServices(slow, SET, "default/c")
		synctest.Wait()
		sendSlices(slow, SET)
		synctest.Wait()
		require.Equal(t, lines(
			"Service default/a from fast",
			"Service default/c from slow",
			"complete",
		), h.last(), "it has come after all: the problem is over, and endpoints alone can bring that about")
		require.Equal(t, 4, h.calls())
		r.end(t)
		require.Equal(t, []string{
			"info fast: the source's first full state is in",
			"warning slow: the source has not delivered its first full state within 30s; going on without it, removing nothing",
			"info slow: the source's first full state is in",
		}, r.logged())
	})
}

func TestMoreShowsAChangeOfBothChannelsWhole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := build(t, Options{})
		var h recorder
		src, other := r.AddSource("src"), r.AddSource("other")
		r.Register(ServiceKind|EndpointsKind, &h)
		r.run()
		deliver(src)
		deliver(other)

		src.Services <- ServiceUpdate{Op: SET, Services: servicesNamed("default/a"), More: true}
		sendServices(other, SET, "default/o")
		synctest.Wait()
		want := lines("Service default/o from other", "complete")
		require.Equal(t, want, h.last(), "another source is not held up, and does not bring half a change to light")
		require.Equal(t, want, dumpSnapshot(r.Snapshot()))

		sendSlices(src, SET, "default/a-1 of a")
		synctest.Wait()
		require.Equal(t, lines(
			"Service default/a from src",
			"Service default/o from other",
			"Endpoints default/a from src: default/a-1",
			"complete"), h.last())
		require.Equal(t, 3, h.calls(), "once, for both channels")

		// A longer chain, begun on the other channel and ended on the same.
		src.Endpoints <- EndpointsUpdate{Op: REMOVE, Slices: slicesNamed("default/a-1"), More: true}
		src.Services <- ServiceUpdate{Op: REMOVE, Services: servicesNamed("default/a"), More: true}
		src.Services <- ServiceUpdate{Op: ADD, Services: servicesNamed("default/b"), More: true}
		synctest.Wait()
		require.Equal(t, 3, h.calls())
		sendSlices(src, ADD, "default/b-1 of b")
		synctest.Wait()
		require.Equal(t, lines(
			"Service default/b from src",
			"Service default/o from other",
			"Endpoints default/b from src: default/b-1",
			"complete"), h.last())
		require.Equal(t, 4, h.calls())
		r.end(t)
	})
}

func TestMoreThatNeverComesHoldsForALimitedTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := build(t, Options{})
		var h recorder
		src := r.AddSource("src")
		r.Register(ServiceKind, &h)
		r.run()
		deliver(src)

		src.Services <- ServiceUpdate{Op: ADD, Services: servicesNamed("default/a"), More: true}
		time.Sleep(HoldLimit / 2)
		src.Services <- ServiceUpdate{Op: ADD, Services: servicesNamed("default/b"), More: true} // does not begin it anew
		time.Sleep(HoldLimit/2 - time.Nanosecond)
		synctest.Wait()
		require.Equal(t, 1, h.calls())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Equal(t, lines("Service default/a from src", "Service default/b from src", "complete"), h.last())

		sendServices(src, SET)
		synctest.Wait()
		require.Equal(t, lines("complete"), h.last(), "and it is as before")
		time.Sleep(time.Hour)
		r.end(t)
		require.Equal(t, []string{
			"info src: the source's first full state is in",
			"warning src: the source announced more of a change and did not send it within 1s",
		}, r.logged())
	})
}

func TestMoreOnTheFirstStateDeliversWithTheWholeOfIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := build(t, Options{})
		var h recorder
		src := r.AddSource("src")
		r.Register(ServiceKind|EndpointsKind, &h)
		r.run()
		src.Services <- ServiceUpdate{Op: SET, Services: servicesNamed("default/a"), More: true}
		src.Endpoints <- EndpointsUpdate{Op: SET, Slices: slicesNamed("default/a-1 of a")}
		synctest.Wait()
		require.Equal(t, lines(
			"Service default/a from src",
			"Endpoints default/a from src: default/a-1",
			"complete"), h.last())
		require.Equal(t, 1, h.calls())
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

func TestASendAfterRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := build(t, Options{})
		src := r.AddSource("src")
		r.run()
		sent := make(chan int)
		go func() { // a source as update.go asks for
			n := 0
			defer func() { sent <- n }()
			for {
				select {
				case src.Services <- ServiceUpdate{Op: SET}:
					n++
				case <-r.ctx.Done():
					return
				}
				time.Sleep(time.Second)
			}
		}()
		time.Sleep(time.Minute)
		r.end(t)
		require.Positive(t, <-sent)
	})
}

// sourceFunc is a Source made of a function.
type sourceFunc struct {
	name string
	run  func(ctx context.Context, to Updates) error
}

func (s sourceFunc) Name() string                              { return s.name }
func (s sourceFunc) Run(ctx context.Context, to Updates) error { return s.run(ctx, to) }

// delivering is a source that delivers one Service of its own name first.
func delivering(name string, then func(ctx context.Context, to Updates) error) Source {
	return sourceFunc{name, func(ctx context.Context, to Updates) error {
		select {
		case to.Services <- ServiceUpdate{Op: SET, Services: servicesNamed("default/" + name)}:
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case to.Endpoints <- EndpointsUpdate{Op: SET}:
		case <-ctx.Done():
			return ctx.Err()
		}
		return then(ctx, to)
	}}
}

func untilDone(ctx context.Context, _ Updates) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestRunRunsItsSources(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := build(t, Options{})
		var h recorder
		r.Add(delivering("a", untilDone))
		b := r.AddSource("b")
		r.Add(delivering("c", func(ctx context.Context, _ Updates) error {
			<-ctx.Done()
			time.Sleep(time.Second) // it has things to put away
			return nil
		}))
		r.Register(ServiceKind, &h)
		r.run()
		deliver(b)
		require.Equal(t, lines("Service default/a from a", "Service default/c from c", "complete"), h.last())
		r.stop()
		synctest.Wait()
		require.Empty(t, r.err, "Run waits for every source")
		require.NoError(t, <-r.err)
	})
}

func TestRunReturnsTheErrorOfASourceThatNeverDelivered(t *testing.T) {
	t.Parallel()
	fault := errors.New("services.yaml: no such file")
	for name, tc := range map[string]struct {
		run  func(ctx context.Context, to Updates) error
		want string
	}{
		"at once": {func(context.Context, Updates) error { return fault }, "source file: services.yaml: no such file"},
		"half way": {func(_ context.Context, to Updates) error {
			sendServices(to, SET)
			return fault
		}, "source file: services.yaml: no such file"},
		"without a reason": {func(context.Context, Updates) error { return nil }, "source file: ended though nobody asked it to"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := build(t, Options{})
				r.Add(delivering("other", untilDone))
				r.Add(sourceFunc{"file", tc.run})
				err := r.Run(r.ctx)
				require.EqualError(t, err, tc.want)
				var failed *SourceError
				require.ErrorAs(t, err, &failed)
				require.Equal(t, "file", failed.Source)
				r.stop()
			})
		})
	}
}

func TestASourceThatFailsLaterLeavesItsStateAndAProblem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := build(t, Options{})
		var h recorder
		r.Add(delivering("file", func(_ context.Context, to Updates) error {
			// The last it has to say, held for more that will not come.
			to.Services <- ServiceUpdate{Op: ADD, Services: servicesNamed("default/last"), More: true}
			return errors.New("inotify: too many open files")
		}))
		other := r.AddSource("other")
		r.Register(ServiceKind, &h)
		r.run()
		deliver(other)
		want := lines(
			"Service default/file from file",
			"Service default/last from file",
			"Problem Source file: SourceEnded",
			"complete")
		require.Equal(t, want, dumpSnapshot(r.Snapshot()))
		require.Equal(t, "inotify: too many open files", r.Snapshot().Sources[0].Err)
		sendServices(other, ADD, "default/o")
		synctest.Wait()
		require.Equal(t, lines(
			"Service default/file from file",
			"Service default/last from file",
			"Service default/o from other",
			"Problem Source file: SourceEnded",
			"complete"), h.last(), "the others go on")
		r.end(t)
		require.Contains(t, r.logged(), "error file: the source has failed for good; its last state is still served")
	})
}

func TestASourceThatDoesNotEndCleanlyIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := build(t, Options{})
		r.Add(delivering("a", func(ctx context.Context, _ Updates) error {
			<-ctx.Done()
			return errors.New("close: broken")
		}))
		r.Add(delivering("b", untilDone))
		r.run()
		synctest.Wait()
		r.end(t)
		last := r.hook.LastEntry()
		require.Equal(t, logrus.WarnLevel, last.Level)
		require.Equal(t, "a", last.Data["source"])
		require.EqualError(t, last.Data[logrus.ErrorKey].(error), "close: broken")
	})
}

func TestServiceConfigIsPutTogetherBeforeItRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := build(t, Options{})
		r.AddSource("file")
		require.PanicsWithValue(t, `config: two sources are called "file"`, func() { r.AddSource("file") })
		require.PanicsWithValue(t, "config: a handler was registered for no kind", func() { r.Register(0, &recorder{}) })
		r.run()
		synctest.Wait()
		require.PanicsWithValue(t, "config: a source was added after Run", func() { r.AddSource("etcd") })
		require.PanicsWithValue(t, "config: a source was added after Run", func() { r.Add(delivering("etcd", untilDone)) })
		require.PanicsWithValue(t, "config: a handler was registered after Run", func() { r.Register(ServiceKind, &recorder{}) })
		require.EqualError(t, r.Run(r.ctx), "config: Run was called twice")
		r.end(t)
	})
}

func TestOptions(t *testing.T) {
	t.Parallel()
	o := Options{}.Defaults()
	require.Equal(t, 30*time.Second, o.Grace)
	require.NotNil(t, o.Now)
	require.NoError(t, o.Validate())

	kept := Options{Grace: time.Second}.Defaults()
	require.Equal(t, time.Second, kept.Grace)

	log, _ := logrustest.NewNullLogger()
	const want = "config: the grace for late sources is -1s and cannot be negative"
	require.EqualError(t, Options{Grace: -time.Second}.Validate(), want)
	require.EqualError(t, New(log, Options{Grace: -time.Second}).Run(t.Context()), want)
}

func TestServiceConfigDatesUpdatesByItsClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		at := time.Date(2014, 6, 6, 23, 40, 0, 0, time.UTC)
		r := build(t, Options{Now: func() time.Time { return at }})
		src := r.AddSource("src")
		r.run()
		deliver(src)
		require.Equal(t, []SourceInfo{{Name: "src", Delivered: true, Updated: at}}, r.Snapshot().Sources)
		r.end(t)
	})
}
