package config

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// The property (cases 20 and 43: no order of events may matter): however the
// updates of three sources interleave, each source's own order kept, the
// snapshot at the end is the one that their final states make when each is
// applied once. It is checked three ways: by the store against another store,
// by the store against the merge rules written down naively, and through the
// channels with a goroutine for each source.

// said is one update of one source.
type said struct {
	source    int
	services  *ServiceUpdate
	endpoints *EndpointsUpdate
}

const (
	saidBytes = 4
	saidNames = 6 // names of each kind, in two namespaces
)

// decodeSaid reads updates from bytes, so that the fuzzer can make them.
func decodeSaid(b []byte) []said {
	var all []said
	for ; len(b) >= saidBytes; b = b[saidBytes:] {
		var (
			head = int(b[0])
			u    = said{source: head % 3}
			op   = []Operation{SET, ADD, REMOVE}[head/6%3]
			more = head/18%2 == 1
		)
		if head/3%2 == 0 {
			u.services = &ServiceUpdate{Op: op, Services: servicesNamed(saidServices(b[1], b[2])...), More: more}
		} else {
			u.endpoints = &EndpointsUpdate{Op: op, Slices: saidSlices(b[1], b[2]), Endpoints: v1EndpointsNamed(saidServices(b[3], b[2])...), More: more}
		}
		all = append(all, u)
	}
	return all
}

func saidServices(mask, version byte) []string {
	var refs []string
	for i := range saidNames {
		if mask>>i&1 == 1 {
			refs = append(refs, fmt.Sprintf("n%d/%c@%d", i%2, 'a'+i/2, version))
		}
	}
	return refs
}

func saidSlices(mask, version byte) []*discoveryv1.EndpointSlice {
	var list []*discoveryv1.EndpointSlice
	for i := range saidNames {
		if mask>>i&1 == 0 {
			continue
		}
		ref := fmt.Sprintf("n%d/s%d@%d", i%2, i, version)
		owner := (int(version) + i) % 5
		if owner < 3 {
			ref += " of " + string(rune('a'+owner))
		}
		slice := slicesNamed(ref)[0]
		if owner == 4 {
			slice.Labels = map[string]string{discoveryv1.LabelServiceName: "a", corev1.IsHeadlessService: ""}
		}
		list = append(list, slice)
	}
	return list
}

// state is what one source's updates come to.
type state struct {
	services  map[string]*corev1.Service
	slices    map[string]*discoveryv1.EndpointSlice
	endpoints map[string]*v1Endpoints
}

func newState() *state {
	return &state{map[string]*corev1.Service{}, map[string]*discoveryv1.EndpointSlice{}, map[string]*v1Endpoints{}}
}

func (s *state) add(u said) {
	if u.services != nil {
		stateOf(s.services, u.services.Op, u.services.Services)
		return
	}
	stateOf(s.slices, u.endpoints.Op, u.endpoints.Slices)
	stateOf(s.endpoints, u.endpoints.Op, u.endpoints.Endpoints)
}

func stateOf[T interface {
	GetNamespace() string
	GetName() string
}](have map[string]T, op Operation, objects []T) {
	if op == SET {
		clear(have)
	}
	for _, o := range objects {
		name := o.GetNamespace() + "/" + o.GetName()
		delete(have, name)
		if op != REMOVE {
			have[name] = o
		}
	}
}

func (s *state) whole() change {
	var c change
	set := ServiceUpdate{Op: SET}
	for _, o := range s.services {
		set.Services = append(set.Services, o)
	}
	setEndpoints := EndpointsUpdate{Op: SET}
	for _, o := range s.slices {
		setEndpoints.Slices = append(setEndpoints.Slices, o)
	}
	for _, o := range s.endpoints {
		setEndpoints.Endpoints = append(setEndpoints.Endpoints, o)
	}
	c.services, c.endpoints = []ServiceUpdate{set}, []EndpointsUpdate{setEndpoints}
	return c
}

// naiveMerge is the merge as DESIGN has it in words, without any memory.
func naiveMerge(sources []string, states []*state) string {
	var svcs, eps, problems []string
	for _, ns := range []string{"n0", "n1"} {
		for _, name := range []string{"a", "b", "c"} {
			full := ns + "/" + name
			owner := -1
			for i, s := range states {
				switch obj := s.services[full]; {
				case obj == nil:
				case owner < 0:
					owner = i
					svcs = append(svcs, fmt.Sprintf("Service %s from %s", dumpMeta(obj.ObjectMeta), sources[i]))
				default:
					problems = append(problems, fmt.Sprintf("Problem Service %s: ShadowedBySource", full))
				}
			}
			order := []int{0, 1, 2}
			if owner >= 0 {
				order = []int{owner, 0, 1, 2}
			}
			for _, i := range order {
				if l := states[i].speak(ns, name); l != "" {
					eps = append(eps, fmt.Sprintf("Endpoints %s from %s:%s", full, sources[i], l))
					break
				}
			}
		}
	}
	for _, s := range states {
		for full, slice := range s.slices {
			if slice.Labels == nil {
				problems = append(problems, fmt.Sprintf("Problem EndpointSlice %s: NoServiceName", full))
			}
		}
	}
	slices.Sort(problems)
	return lines(slices.Concat(svcs, eps, problems, []string{"complete"})...)
}

// speak is what a source says about one Service's endpoints.
func (s *state) speak(ns, name string) string {
	var l []string
	for _, slice := range s.slices {
		_, headless := slice.Labels[corev1.IsHeadlessService]
		if slice.Namespace == ns && !headless && slice.Labels[discoveryv1.LabelServiceName] == name {
			l = append(l, " "+dumpMeta(slice.ObjectMeta))
		}
	}
	if obj := s.endpoints[ns+"/"+name]; len(l) == 0 && obj != nil {
		l = append(l, " v1.Endpoints "+dumpMeta(obj.ObjectMeta))
	}
	slices.Sort(l)
	return strings.Join(l, "")
}

var saidSources = []string{"first", "second", "third"}

// finalStates are what the updates come to, source by source.
func finalStates(updates []said) []*state {
	states := []*state{newState(), newState(), newState()}
	for _, u := range updates {
		states[u.source].add(u)
	}
	return states
}

func appliedOnce(states []*state) Snapshot {
	s := deliveredStore(saidSources...)
	for i, st := range states {
		s.apply(s.sources[i], st.whole(), time.Time{})
	}
	return s.snapshot()
}

// checkInterleaving applies updates one by one in the order given, merging now
// and then.
func checkInterleaving(t *testing.T, updates []said, seed ...any) {
	t.Helper()
	s := deliveredStore(saidSources...)
	for i, u := range updates {
		var ch change
		if u.services != nil {
			ch.services = []ServiceUpdate{*u.services}
		} else {
			ch.endpoints = []EndpointsUpdate{*u.endpoints}
		}
		s.apply(s.sources[u.source], ch, time.Time{})
		if i%3 == 0 {
			s.snapshot()
		}
	}
	states := finalStates(updates)
	require.Equal(t, naiveMerge(saidSources, states), dumpSnapshot(s.snapshot()), seed...)
	require.Equal(t, appliedOnce(states), s.snapshot(), seed...)
	requireTidy(t, s)
}

// requireTidy checks that the store's indexes hold nothing that is gone, so
// that memory comes back after churn.
func requireTidy(t *testing.T, s *store) {
	t.Helper()
	require.Empty(t, s.staleServices)
	require.Empty(t, s.staleEndpoints)
	for _, c := range s.sources {
		indexed := 0
		for owner, of := range c.slicesOf {
			require.NotEmpty(t, of, "an index entry of %v for nothing", owner)
			indexed += len(of)
		}
		require.LessOrEqual(t, indexed+len(c.nameless), len(c.slices))
		require.LessOrEqual(t, len(c.shadowed), len(c.services))
	}
}

func randomSaid(r *rand.Rand, n int) []said {
	b := make([]byte, n*saidBytes)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return decodeSaid(b)
}

// interleave deals the updates of each source anew into one order.
func interleave(r *rand.Rand, updates []said) []said {
	bySource := make([][]said, 3)
	for _, u := range updates {
		bySource[u.source] = append(bySource[u.source], u)
	}
	var mixed []said
	for _, i := range r.Perm(len(updates)) {
		from := updates[i].source
		mixed = append(mixed, bySource[from][0])
		bySource[from] = bySource[from][1:]
	}
	return mixed
}

func TestCase20_AnyInterleavingOfSourcesEndsInTheSameSnapshot(t *testing.T) {
	t.Parallel()
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 20))
		updates := randomSaid(r, 1+r.IntN(40))
		want := appliedOnce(finalStates(updates))
		for range 2 {
			mixed := interleave(r, updates)
			checkInterleaving(t, mixed, "seed %d", seed)
			require.Equal(t, want, appliedOnce(finalStates(mixed)), "seed %d", seed)
		}
	}
}

func TestCase20_AnyInterleavingThroughTheChannels(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 43))
			updates := randomSaid(r, 1+r.IntN(60))
			c := build(t, Options{})
			var to []Updates
			for _, name := range saidSources {
				to = append(to, c.AddSource(name))
			}
			var services, endpoints, both recorder
			c.Register(ServiceKind, &services)
			c.Register(EndpointsKind, &endpoints)
			c.Register(ServiceKind|EndpointsKind, &both)
			c.run()

			var sources sync.WaitGroup
			for i := range to {
				sources.Go(func() { sayAll(to[i], i, updates) })
			}
			sources.Wait()
			synctest.Wait()

			states := finalStates(updates)
			want := appliedOnce(states)
			got := c.Snapshot()
			require.Equal(t, naiveMerge(saidSources, states), dumpSnapshot(got), "seed %d", seed)
			require.Equal(t, want.Services, got.Services)
			require.Equal(t, want.Endpoints, got.Endpoints)
			require.Equal(t, want.Problems, got.Problems)
			require.Equal(t, want.Services, services.seen[len(services.seen)-1].Services)
			require.Equal(t, want.Endpoints, endpoints.seen[len(endpoints.seen)-1].Endpoints)
			require.Equal(t, want.Services, both.seen[len(both.seen)-1].Services)
			require.Equal(t, want.Endpoints, both.seen[len(both.seen)-1].Endpoints)
			c.end(t)
		})
	}
}

// sayAll is one source that sends its part of the updates, after an empty
// first state and with a last word that ends what it may have left open.
func sayAll(to Updates, source int, updates []said) {
	to.Services <- ServiceUpdate{Op: SET}
	to.Endpoints <- EndpointsUpdate{Op: SET}
	for _, u := range updates {
		switch {
		case u.source != source:
		case u.services != nil:
			to.Services <- *u.services
		default:
			to.Endpoints <- *u.endpoints
		}
	}
	to.Services <- ServiceUpdate{Op: ADD}
}

func FuzzInterleaving(f *testing.F) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 43))
		b := make([]byte, saidBytes*(1+r.IntN(20)))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 400*saidBytes {
			b = b[:400*saidBytes]
		}
		checkInterleaving(t, decodeSaid(b))
	})
}
