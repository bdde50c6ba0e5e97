package config

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// mergeStep is one change of one source and all that is known after it.
type mergeStep struct {
	why    string
	source int
	change change
	wakes  Kinds
	want   string
}

func services(op Operation, refs ...string) change {
	return change{services: []ServiceUpdate{{Op: op, Services: servicesNamed(refs...)}}}
}

func endpointSlices(op Operation, refs ...string) change {
	return change{endpoints: []EndpointsUpdate{{Op: op, Slices: slicesNamed(refs...)}}}
}

func v1EndpointsChange(op Operation, refs ...string) change {
	return change{endpoints: []EndpointsUpdate{{Op: op, Endpoints: v1EndpointsNamed(refs...)}}}
}

// runMergeSteps feeds a store with the sources "first", "second" and "third",
// which have delivered empty states.
func runMergeSteps(t *testing.T, steps []mergeStep) {
	t.Helper()
	s := deliveredStore("first", "second", "third")
	for i, step := range steps {
		woken := s.apply(s.sources[step.source], step.change, time.Time{})
		require.Equal(t, step.want, dumpSnapshot(s.snapshot()), "step %d: %s", i, step.why)
		require.Equal(t, step.wakes, woken, "step %d: %s: kinds woken", i, step.why)
	}
}

func deliveredStore(names ...string) *store {
	s := &store{}
	for _, name := range names {
		c := s.addSource(name)
		s.apply(c, services(SET), time.Time{})
		s.apply(c, endpointSlices(SET), time.Time{})
	}
	return s
}

func TestStoreOperations(t *testing.T) {
	t.Parallel()
	runMergeSteps(t, []mergeStep{
		{"ADD adds", 0, services(ADD, "default/b@1", "default/a@1"), ServiceKind, lines(
			"Service default/a@1 from first",
			"Service default/b@1 from first",
			"complete")},
		{"ADD replaces", 0, services(ADD, "default/a@2"), ServiceKind, lines(
			"Service default/a@2 from first",
			"Service default/b@1 from first",
			"complete")},
		{"REMOVE needs the name only, and forgives a name that is not there", 0, services(REMOVE, "default/a", "default/z"), ServiceKind, lines(
			"Service default/b@1 from first",
			"complete")},
		{"SET is all there is", 0, services(SET, "default/c@1", "default/b@2"), ServiceKind, lines(
			"Service default/b@2 from first",
			"Service default/c@1 from first",
			"complete")},
		{"endpoints of their own, for a Service that nobody has too", 0, endpointSlices(ADD, "default/b-2@1 of b", "default/x-1@1 of x", "default/b-1@1 of b"), EndpointsKind, lines(
			"Service default/b@2 from first",
			"Service default/c@1 from first",
			"Endpoints default/b from first: default/b-1@1 default/b-2@1",
			"Endpoints default/x from first: default/x-1@1",
			"complete")},
		{"an update of two operations", 0, change{
			services:  []ServiceUpdate{{Op: ADD, Services: servicesNamed("default/d")}, {Op: REMOVE, Services: servicesNamed("default/c")}},
			endpoints: []EndpointsUpdate{{Op: REMOVE, Slices: slicesNamed("default/b-2")}},
		}, ServiceKind | EndpointsKind, lines(
			"Service default/b@2 from first",
			"Service default/d from first",
			"Endpoints default/b from first: default/b-1@1",
			"Endpoints default/x from first: default/x-1@1",
			"complete")},
		{"SET of an empty list clears its kind", 0, services(SET), ServiceKind, lines(
			"Endpoints default/b from first: default/b-1@1",
			"Endpoints default/x from first: default/x-1@1",
			"complete")},
		{"and only its kind", 0, endpointSlices(SET), EndpointsKind, lines("complete")},
		{"what alters nothing wakes nobody", 0, endpointSlices(REMOVE, "default/b-1"), 0, lines("complete")},
	})
}

func TestStoreSetsSlicesAndEndpointsTogether(t *testing.T) {
	t.Parallel()
	runMergeSteps(t, []mergeStep{
		{"both forms at once", 0, change{endpoints: []EndpointsUpdate{{
			Op: SET, Slices: slicesNamed("default/a-1 of a"), Endpoints: v1EndpointsNamed("default/b"),
		}}}, EndpointsKind, lines(
			"Endpoints default/a from first: default/a-1",
			"Endpoints default/b from first: v1.Endpoints default/b",
			"complete")},
		{"a SET without one form clears it", 0, endpointSlices(SET, "default/a-2 of a"), EndpointsKind, lines(
			"Endpoints default/a from first: default/a-2",
			"complete")},
	})
}

func TestStoreSortsByNamespaceThenName(t *testing.T) {
	t.Parallel()
	runMergeSteps(t, []mergeStep{
		{"as pairs, not as one string", 1, services(ADD, "default-2/a", "default/b", "default/a", "d/z"), ServiceKind, lines(
			"Service d/z from second",
			"Service default/a from second",
			"Service default/b from second",
			"Service default-2/a from second",
			"complete")},
	})
}

func TestStoreOfOneNameTwiceTheLatterHolds(t *testing.T) {
	t.Parallel()
	runMergeSteps(t, []mergeStep{
		{"in one SET", 0, services(SET, "default/a@1", "default/a@2"), ServiceKind, lines(
			"Service default/a@2 from first",
			"complete")},
	})
}

func TestCase39_TwoSourcesOneName(t *testing.T) {
	t.Parallel()
	runMergeSteps(t, []mergeStep{
		{"the last in order has it alone", 2, services(SET, "default/web@3"), ServiceKind, lines(
			"Service default/web@3 from third",
			"complete")},
		{"an earlier one takes precedence", 1, services(SET, "default/web@2", "default/only"), ServiceKind, lines(
			"Service default/only from second",
			"Service default/web@2 from second",
			"Problem Service default/web: ShadowedBySource",
			"complete")},
		{"the first even more so, and both others are problems", 0, services(ADD, "default/web@1"), ServiceKind, lines(
			"Service default/only from second",
			"Service default/web@1 from first",
			"Problem Service default/web: ShadowedBySource",
			"Problem Service default/web: ShadowedBySource",
			"complete")},
		{"a change of one that is shadowed stays behind", 2, services(ADD, "default/web@4"), ServiceKind, lines(
			"Service default/only from second",
			"Service default/web@1 from first",
			"Problem Service default/web: ShadowedBySource",
			"Problem Service default/web: ShadowedBySource",
			"complete")},
		{"removing the one in the middle shows nobody", 1, services(REMOVE, "default/web"), ServiceKind, lines(
			"Service default/only from second",
			"Service default/web@1 from first",
			"Problem Service default/web: ShadowedBySource",
			"complete")},
		{"removing the winner shows the other, as it is now", 0, services(SET), ServiceKind, lines(
			"Service default/only from second",
			"Service default/web@4 from third",
			"complete")},
		{"the same name in another namespace is another Service", 0, services(SET, "other/web"), ServiceKind, lines(
			"Service default/only from second",
			"Service default/web@4 from third",
			"Service other/web from first",
			"complete")},
	})
}

func TestCase39_TheProblemNamesBothSources(t *testing.T) {
	t.Parallel()
	s := deliveredStore("file", "apiserver", "etcd")
	s.apply(s.sources[1], services(ADD, "default/web"), time.Time{})
	s.apply(s.sources[2], services(ADD, "default/web"), time.Time{})
	shadowed := func(by string) service.Problem {
		return service.Problem{
			Object:  "Service default/web",
			Reason:  "ShadowedBySource",
			Detail:  `source "etcd" has it too, but source "` + by + `" precedes and is the one that is served`,
			Advice:  "remove or rename one of the two, or change the order of the sources",
			Service: service.ServiceRef{Source: "etcd", Namespace: "default", Name: "web"},
		}
	}
	require.Equal(t, []service.Problem{shadowed("apiserver")}, s.snapshot().Problems)

	s.apply(s.sources[0], services(ADD, "default/web"), time.Time{})
	require.Contains(t, s.snapshot().Problems, shadowed("file"), "a new winner is named")
	require.Len(t, s.snapshot().Problems, 2)
	var counts []int
	for _, info := range s.snapshot().Sources {
		counts = append(counts, info.Problems)
	}
	require.Equal(t, []int{0, 1, 1}, counts, "each source's own problems are counted")
}

func TestCase39_EndpointsFollowTheSourceOfTheirService(t *testing.T) {
	t.Parallel()
	const both = ServiceKind | EndpointsKind
	runMergeSteps(t, []mergeStep{
		{"nobody has the Service: the first source that speaks", 2, endpointSlices(SET, "default/w-3 of web"), EndpointsKind, lines(
			"Endpoints default/web from third: default/w-3",
			"complete")},
		{"which is this one now", 1, v1EndpointsChange(SET, "default/web"), EndpointsKind, lines(
			"Endpoints default/web from second: v1.Endpoints default/web",
			"complete")},
		{"the Service comes from the third: so do its endpoints", 2, services(SET, "default/web"), both, lines(
			"Service default/web from third",
			"Endpoints default/web from third: default/w-3",
			"complete")},
		{"the Service moves to the second, whose v1.Endpoints precede another's slices", 1, services(SET, "default/web"), both, lines(
			"Service default/web from second",
			"Endpoints default/web from second: v1.Endpoints default/web",
			"Problem Service default/web: ShadowedBySource",
			"complete")},
		{"slices precede v1.Endpoints of the same source", 1, endpointSlices(ADD, "default/w-2 of web"), EndpointsKind, lines(
			"Service default/web from second",
			"Endpoints default/web from second: default/w-2",
			"Problem Service default/web: ShadowedBySource",
			"complete")},
		{"the Service moves to one without endpoints: the first that has any", 0, services(SET, "default/web"), both, lines(
			"Service default/web from first",
			"Endpoints default/web from second: default/w-2",
			"Problem Service default/web: ShadowedBySource",
			"Problem Service default/web: ShadowedBySource",
			"complete")},
		{"a changed Service does not move endpoints, and wakes nobody for them", 0, services(ADD, "default/web@2"), ServiceKind, lines(
			"Service default/web@2 from first",
			"Endpoints default/web from second: default/w-2",
			"Problem Service default/web: ShadowedBySource",
			"Problem Service default/web: ShadowedBySource",
			"complete")},
		{"the slices go, the v1.Endpoints are left", 1, endpointSlices(REMOVE, "default/w-2"), EndpointsKind, lines(
			"Service default/web@2 from first",
			"Endpoints default/web from second: v1.Endpoints default/web",
			"Problem Service default/web: ShadowedBySource",
			"Problem Service default/web: ShadowedBySource",
			"complete")},
		{"the second has none left: the third's", 1, endpointSlices(SET), EndpointsKind, lines(
			"Service default/web@2 from first",
			"Endpoints default/web from third: default/w-3",
			"Problem Service default/web: ShadowedBySource",
			"Problem Service default/web: ShadowedBySource",
			"complete")},
		{"nobody has any", 2, endpointSlices(SET), EndpointsKind, lines(
			"Service default/web@2 from first",
			"Problem Service default/web: ShadowedBySource",
			"Problem Service default/web: ShadowedBySource",
			"complete")},
	})
}

func TestSemantics_sliceServiceNameLabel(t *testing.T) {
	t.Parallel()
	runMergeSteps(t, []mergeStep{
		{"a slice without the label belongs to nobody and is reported", 0, endpointSlices(SET, "default/s"), 0, lines(
			"Problem EndpointSlice default/s: NoServiceName",
			"complete")},
		{"an empty label is no name", 0, endpointSlices(ADD, "default/s of "), 0, lines(
			"Problem EndpointSlice default/s: NoServiceName",
			"complete")},
		{"with the label it belongs to one", 0, endpointSlices(ADD, "default/s of a"), EndpointsKind, lines(
			"Endpoints default/a from first: default/s",
			"complete")},
		{"a changed label takes it from one to the other", 0, endpointSlices(ADD, "default/s@2 of b"), EndpointsKind, lines(
			"Endpoints default/b from first: default/s@2",
			"complete")},
		{"a label that went takes it from all", 0, endpointSlices(ADD, "default/s@3"), EndpointsKind, lines(
			"Problem EndpointSlice default/s: NoServiceName",
			"complete")},
		{"its problem goes along with it", 0, endpointSlices(REMOVE, "default/s"), 0, lines("complete")},
	})
}

func TestSemantics_headlessLabelOnASlice(t *testing.T) {
	t.Parallel()
	headless := slicesNamed("default/s of a", "default/nameless")
	for _, slice := range headless {
		if slice.Labels == nil {
			slice.Labels = map[string]string{}
		}
		slice.Labels[corev1.IsHeadlessService] = ""
	}
	set := func(slices []*discoveryv1.EndpointSlice) change {
		return change{endpoints: []EndpointsUpdate{{Op: SET, Slices: slices}}}
	}
	runMergeSteps(t, []mergeStep{
		{"ignored, also where it names no Service", 0, set(headless), 0, lines("complete")},
		{"the label goes", 0, set(slicesNamed("default/s of a")), EndpointsKind, lines(
			"Endpoints default/a from first: default/s",
			"complete")},
		{"the label comes", 0, set(headless[:1]), EndpointsKind, lines("complete")},
		{"an ignored slice does not hide v1.Endpoints", 0, v1EndpointsChange(ADD, "default/a"), EndpointsKind, lines(
			"Endpoints default/a from first: v1.Endpoints default/a",
			"complete")},
	})
}

func TestStoreIsCompleteWhenEverySourceHasSetBothKinds(t *testing.T) {
	t.Parallel()
	s := &store{}
	require.True(t, s.snapshot().Complete, "no sources: nothing to wait for")
	a, b := s.addSource("a"), s.addSource("b")
	complete := func() bool { return s.snapshot().Complete }
	require.False(t, complete())
	s.apply(a, services(SET), time.Time{})
	s.apply(b, endpointSlices(SET), time.Time{})
	require.False(t, complete(), "one kind each")
	s.apply(a, v1EndpointsChange(SET), time.Time{})
	require.False(t, complete())
	s.apply(b, services(ADD, "default/a"), time.Time{})
	require.False(t, complete(), "an ADD is not a full state")
	s.apply(b, services(SET), time.Time{})
	require.True(t, complete())
	require.Empty(t, s.snapshot().Services, "the SET says all there is")
}

func TestStoreSourceInfo(t *testing.T) {
	t.Parallel()
	var (
		s       = &store{}
		c       = s.addSource("file")
		updated = time.Date(2014, 6, 6, 23, 40, 0, 0, time.UTC)
		problem = service.Problem{Object: "file /etc/services.yaml", Reason: "Undecodable", Detail: "tab"}
	)
	require.Equal(t, []SourceInfo{{Name: "file"}}, s.snapshot().Sources)

	s.apply(c, change{
		services: []ServiceUpdate{{Op: SET, Services: servicesNamed("default/a", "default/b")}},
		endpoints: []EndpointsUpdate{{
			Op: SET, Slices: slicesNamed("default/a-1 of a", "default/x"), Endpoints: v1EndpointsNamed("default/b"),
		}},
	}, updated)
	s.report(c, SourceStatus{Problems: []service.Problem{problem}, Err: errors.New("no such file"), Checked: updated.Add(time.Second)})
	require.Equal(t, []SourceInfo{{
		Name: "file", Delivered: true, Updated: updated, Checked: updated.Add(time.Second),
		Services: 2, Endpoints: 3, Err: "no such file", Problems: 2,
	}}, s.snapshot().Sources)
	require.Contains(t, s.snapshot().Problems, problem)

	s.report(c, SourceStatus{Checked: updated.Add(time.Minute)})
	require.Equal(t, []SourceInfo{{
		Name: "file", Delivered: true, Updated: updated, Checked: updated.Add(time.Minute),
		Services: 2, Endpoints: 3, Problems: 1,
	}}, s.snapshot().Sources, "a status replaces the one before")
}

// Handlers keep snapshots for as long as they like, on goroutines of their
// own. What they hold must not change under them, whatever comes later.
func TestStoreSnapshotsAreNeverChanged(t *testing.T) {
	t.Parallel()
	s := deliveredStore("first", "second")
	s.apply(s.sources[1], services(SET, "default/a", "default/c"), time.Time{})
	s.apply(s.sources[1], endpointSlices(SET, "default/a-1 of a", "default/x"), time.Time{})
	kept := s.snapshot()
	before := dumpSnapshot(kept)
	a1 := slices.Clone(kept.Endpoints[0].Slices)

	s.apply(s.sources[0], services(SET, "default/a@2", "default/b"), time.Time{})
	s.apply(s.sources[1], services(REMOVE, "default/c"), time.Time{})
	s.apply(s.sources[1], endpointSlices(ADD, "default/a-0 of a", "default/a-1@2 of a", "default/b-1 of b"), time.Time{})
	s.report(s.sources[0], SourceStatus{Problems: []service.Problem{{Object: "A"}}})
	require.NotEqual(t, before, dumpSnapshot(s.snapshot()))
	require.Equal(t, before, dumpSnapshot(kept))
	require.Equal(t, a1, kept.Endpoints[0].Slices)

	next := s.snapshot()
	assert.Equal(t, len(next.Services), cap(next.Services), "or a reader who appends would write into it")
	assert.Equal(t, len(next.Endpoints), cap(next.Endpoints))
	assert.Equal(t, len(next.Problems), cap(next.Problems))
}

// A source that looks again and finds the same may say so without disturbing
// anybody, as long as it keeps the objects that it sent.
func TestStoreObjectsThatAreTheVerySameAlterNothing(t *testing.T) {
	t.Parallel()
	set, setSlices := services(SET, "default/a", "default/b"), endpointSlices(SET, "default/a-1 of a")
	runMergeSteps(t, []mergeStep{
		{"for the first time", 0, set, ServiceKind, lines(
			"Service default/a from first",
			"Service default/b from first",
			"complete")},
		{"again", 0, set, 0, lines(
			"Service default/a from first",
			"Service default/b from first",
			"complete")},
		{"slices for the first time", 0, setSlices, EndpointsKind, lines(
			"Service default/a from first",
			"Service default/b from first",
			"Endpoints default/a from first: default/a-1",
			"complete")},
		{"all of it again", 0, change{set.services, setSlices.endpoints}, 0, lines(
			"Service default/a from first",
			"Service default/b from first",
			"Endpoints default/a from first: default/a-1",
			"complete")},
	})
}

func TestStoreSharesTheListsInWhichNothingChanged(t *testing.T) {
	t.Parallel()
	s := deliveredStore("first")
	s.apply(s.sources[0], services(SET, "default/a"), time.Time{})
	s.apply(s.sources[0], endpointSlices(SET, "default/a-1 of a"), time.Time{})
	before := s.snapshot()
	s.apply(s.sources[0], endpointSlices(ADD, "default/a-2 of a"), time.Time{})
	after := s.snapshot()
	require.Same(t, &before.Services[0], &after.Services[0])
	require.NotSame(t, &before.Endpoints[0], &after.Endpoints[0])
}

func TestStoreRefusesAnUnknownOperation(t *testing.T) {
	t.Parallel()
	s := deliveredStore("first")
	require.PanicsWithValue(t, `config: unknown operation "" in an update: a source must say SET, ADD or REMOVE`, func() {
		s.apply(s.sources[0], change{services: []ServiceUpdate{{Services: servicesNamed("default/a")}}}, time.Time{})
	})
}
