package config

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
)

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
