package config

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// store keeps what every source said and the newest merge of it. It starts
// nothing and locks nothing: ServiceConfig does that around it, so that the
// merge can be tested as values in, values out.
//
// An update costs what it carries, not what the store holds: it marks the
// names that it touched as stale, and the next snapshot merges only those.
type store struct {
	sources []*contents // in order of precedence
	late    bool        // the time is over in which sources should have delivered

	merged         Snapshot // the newest; its lists are never changed in place
	current        bool     // nothing was said since merged was made
	staleServices  map[types.NamespacedName]struct{}
	staleEndpoints map[types.NamespacedName]struct{}
	staleProblems  bool
}

// contents is what one source has said, as it stands now.
type contents struct {
	source    string
	services  map[types.NamespacedName]*corev1.Service
	slices    map[types.NamespacedName]*discoveryv1.EndpointSlice
	slicesOf  map[types.NamespacedName]map[string]*discoveryv1.EndpointSlice // the same by the name of their Service, then by their own
	endpoints map[types.NamespacedName]*v1Endpoints

	servicesSet, endpointsSet bool // the first SET on the channel has come
	updated                   time.Time
	status                    SourceStatus
	ended                     error // why its Run returned before its time; nil while it runs

	shadowed map[types.NamespacedName]service.Problem // its Services of which an earlier source has one
	nameless map[types.NamespacedName]service.Problem // its slices that name no Service
	problems int                                      // how many problems it has in the newest merge
}

// delivered says whether the source's first full state is in.
func (c *contents) delivered() bool { return c.servicesSet && c.endpointsSet }

// v1Endpoints is what EndpointSlices have replaced.
type v1Endpoints = corev1.Endpoints //nolint:staticcheck // see EndpointsUpdate

// change is one or more updates of one source that belong together.
type change struct {
	services  []ServiceUpdate
	endpoints []EndpointsUpdate
}

func (s *store) addSource(name string) *contents {
	c := &contents{
		source:    name,
		services:  map[types.NamespacedName]*corev1.Service{},
		slices:    map[types.NamespacedName]*discoveryv1.EndpointSlice{},
		slicesOf:  map[types.NamespacedName]map[string]*discoveryv1.EndpointSlice{},
		endpoints: map[types.NamespacedName]*v1Endpoints{},
		shadowed:  map[types.NamespacedName]service.Problem{},
		nameless:  map[types.NamespacedName]service.Problem{},
	}
	if s.staleServices == nil {
		s.staleServices = map[types.NamespacedName]struct{}{}
		s.staleEndpoints = map[types.NamespacedName]struct{}{}
	}
	s.sources = append(s.sources, c)
	s.current = false
	return c
}

// complete says whether every source has delivered.
func (s *store) complete() bool {
	for _, c := range s.sources {
		if !c.delivered() {
			return false
		}
	}
	return true
}

// apply takes a source's change and says which lists of the next snapshot it
// may have altered. An update that says what was known already alters nothing.
func (s *store) apply(c *contents, ch change, now time.Time) Kinds {
	var altered Kinds
	delivered := c.delivered()
	for _, u := range ch.services {
		altered |= s.applyServices(c, u)
		c.servicesSet = c.servicesSet || u.Op == SET
	}
	for _, u := range ch.endpoints {
		altered |= s.applyEndpoints(c, u)
		c.endpointsSet = c.endpointsSet || u.Op == SET
	}
	c.updated = now
	s.current = false
	if c.delivered() != delivered {
		s.staleProblems = true // that it had not is over
	}
	return altered
}

// report takes what a source says about itself.
func (s *store) report(c *contents, status SourceStatus) {
	c.status = status
	s.current, s.staleProblems = false, true
}

// end notes that a source stopped before its time, and why. What it said stays.
func (s *store) end(c *contents, why error) {
	c.ended = why
	s.current, s.staleProblems = false, true
}

// outOfTime notes that sources should have delivered by now.
func (s *store) outOfTime() {
	s.late = true
	s.current, s.staleProblems = false, true
}

func (s *store) applyServices(c *contents, u ServiceUpdate) Kinds {
	var altered Kinds
	applyObjects(c.services, u.Op, u.Services, func(name types.NamespacedName, from, to *corev1.Service) {
		altered |= ServiceKind
		s.staleServices[name] = struct{}{}
		// Endpoints follow the source of their Service. That source can only
		// be another one now if the Service came or went here.
		if (from == nil) != (to == nil) && s.speakers(name) > 1 {
			altered |= EndpointsKind
			s.staleEndpoints[name] = struct{}{}
		}
	})
	return altered
}

func (s *store) applyEndpoints(c *contents, u EndpointsUpdate) Kinds {
	var altered Kinds
	touch := func(name types.NamespacedName) {
		altered |= EndpointsKind
		s.staleEndpoints[name] = struct{}{}
	}
	applyObjects(c.slices, u.Op, u.Slices, func(name types.NamespacedName, from, to *discoveryv1.EndpointSlice) {
		if from != nil {
			s.dropSlice(c, name, from, touch)
		}
		if to != nil {
			s.putSlice(c, name, to, touch)
		}
	})
	applyObjects(c.endpoints, u.Op, u.Endpoints, func(name types.NamespacedName, _, _ *v1Endpoints) {
		touch(name)
	})
	return altered
}

// putSlice files a slice under the Service that it belongs to.
func (s *store) putSlice(c *contents, name types.NamespacedName, slice *discoveryv1.EndpointSlice, touch func(types.NamespacedName)) {
	owner, ok := serviceOf(slice)
	switch {
	case isHeadless(slice):
	case !ok:
		c.nameless[name] = problemNameless(name, c.source)
		s.staleProblems = true
	default:
		of := c.slicesOf[owner]
		if of == nil {
			of = map[string]*discoveryv1.EndpointSlice{}
			c.slicesOf[owner] = of
		}
		of[name.Name] = slice
		touch(owner)
	}
}

// dropSlice undoes putSlice.
func (s *store) dropSlice(c *contents, name types.NamespacedName, slice *discoveryv1.EndpointSlice, touch func(types.NamespacedName)) {
	owner, ok := serviceOf(slice)
	switch {
	case isHeadless(slice):
	case !ok:
		delete(c.nameless, name)
		s.staleProblems = true
	default:
		delete(c.slicesOf[owner], name.Name)
		if len(c.slicesOf[owner]) == 0 {
			delete(c.slicesOf, owner)
		}
		touch(owner)
	}
}

// speakers counts the sources that say something about a Service's endpoints.
func (s *store) speakers(name types.NamespacedName) int {
	n := 0
	for _, c := range s.sources {
		if c.speaksOf(name) {
			n++
		}
	}
	return n
}

// speaksOf says whether the source has a word on a Service's endpoints, be it
// that there are none.
func (c *contents) speaksOf(name types.NamespacedName) bool {
	return len(c.slicesOf[name]) > 0 || c.endpoints[name] != nil
}

// serviceOf is the name of the Service whose endpoints a slice lists. False:
// the slice does not say.
func serviceOf(slice *discoveryv1.EndpointSlice) (types.NamespacedName, bool) {
	name := slice.Labels[discoveryv1.LabelServiceName]
	return types.NamespacedName{Namespace: slice.Namespace, Name: name}, name != ""
}

// isHeadless says whether a slice is marked as one that no proxy need read.
// The label alone counts, whatever its value, as in kube-proxy.
func isHeadless(slice *discoveryv1.EndpointSlice) bool {
	_, marked := slice.Labels[corev1.IsHeadlessService]
	return marked
}

// applyObjects carries an update out on a source's objects of one kind. It
// calls changed for each object that came (from is nil), went (to is nil) or
// was replaced by another; not for one that is the very same as before. Of two
// objects with one name in one update the latter holds.
func applyObjects[T interface {
	comparable
	metav1.Object
}](have map[types.NamespacedName]T, op Operation, objects []T, changed func(name types.NamespacedName, from, to T)) {
	var none T
	put := func(name types.NamespacedName, to T) {
		from := have[name]
		if from == to {
			return
		}
		if to == none {
			delete(have, name)
		} else {
			have[name] = to
		}
		changed(name, from, to)
	}
	said := make(map[types.NamespacedName]T, len(objects))
	for _, o := range objects {
		said[types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}] = o
	}
	switch op {
	case SET:
		for name := range have {
			if _, stays := said[name]; !stays {
				put(name, none)
			}
		}
		fallthrough
	case ADD:
		for name, o := range said {
			put(name, o)
		}
	case REMOVE:
		for name := range said {
			put(name, none)
		}
	default:
		panic(fmt.Sprintf("config: unknown operation %q in an update: a source must say SET, ADD or REMOVE", op))
	}
}
