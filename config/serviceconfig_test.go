package config

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	logrustest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"
)

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
