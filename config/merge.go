package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// The reasons of the problems that merging reports, beside those of Resolve.
const (
	ReasonShadowedBySource   = "ShadowedBySource"   // an earlier source has a Service of that name
	ReasonNoServiceName      = "NoServiceName"      // a slice without the label that names its Service
	ReasonSourceNotDelivered = "SourceNotDelivered" // a source's first full state did not come in time
	ReasonSourceEnded        = "SourceEnded"        // a source stopped before its time
)

// snapshot merges what has changed since it was last called. Lists in which
// nothing changed are those of the snapshot before; the others are new, so
// that nobody who holds an older snapshot sees it change.
func (s *store) snapshot() Snapshot {
	if s.current {
		return s.merged
	}
	if len(s.staleServices) > 0 {
		s.merged.Services = splice(s.merged.Services, s.mergeServices(), Service.key)
		s.staleServices = map[types.NamespacedName]struct{}{}
	}
	if len(s.staleEndpoints) > 0 {
		s.merged.Endpoints = splice(s.merged.Endpoints, s.mergeEndpoints(), Endpoints.key)
		s.staleEndpoints = map[types.NamespacedName]struct{}{}
	}
	if s.staleProblems {
		s.merged.Problems = s.problems()
		s.staleProblems = false
	}
	s.merged.Complete = s.complete()
	s.merged.Sources = s.sourceInfos()
	s.current = true
	return s.merged
}

// decision is the new value of one name in a list; not present, the name leaves it.
type decision[T any] struct {
	name    types.NamespacedName
	value   T
	present bool
}

// splice returns a list, sorted by name, with the decisions carried out on it,
// which are sorted by name as well. The old list stays as it was.
func splice[T any](old []T, decisions []decision[T], nameOf func(T) types.NamespacedName) []T {
	list := make([]T, 0, len(old)+len(decisions))
	for _, d := range decisions {
		at, found := slices.BinarySearchFunc(old, d.name, func(v T, name types.NamespacedName) int {
			return compareNames(nameOf(v), name)
		})
		list = append(list, old[:at]...)
		if found {
			at++
		}
		old = old[at:]
		if d.present {
			list = append(list, d.value)
		}
	}
	list = append(list, old...)
	if len(list) == 0 {
		return nil // what a store has that never had anything: the past must not show
	}
	return slices.Clip(list) // or a reader who appends would write into the shared list
}

// mergeServices decides each stale name anew: the first source that has the
// Service gives it, the same name in later sources is a problem.
func (s *store) mergeServices() []decision[Service] {
	names := slices.SortedFunc(maps.Keys(s.staleServices), compareNames)
	decisions := make([]decision[Service], len(names))
	for i, name := range names {
		decisions[i].name = name
		owner := s.owner(name)
		if owner != nil {
			decisions[i].value, decisions[i].present = Service{Service: owner.services[name], Source: owner.source}, true
		}
		for _, c := range s.sources {
			s.setShadowed(c, name, owner)
		}
	}
	return decisions
}

// setShadowed notes whether a source's Service stands behind its owner's.
func (s *store) setShadowed(c *contents, name types.NamespacedName, owner *contents) {
	was, had := c.shadowed[name]
	if c == owner || c.services[name] == nil {
		delete(c.shadowed, name)
		s.staleProblems = s.staleProblems || had
		return
	}
	if p := problemShadowed(name, c.source, owner.source); p != was {
		c.shadowed[name] = p
		s.staleProblems = true
	}
}

// mergeEndpoints decides each stale name anew: what the source of the Service
// says about its endpoints, else what the first source says that speaks of
// them. Two sources' endpoints of one Service are never mixed.
func (s *store) mergeEndpoints() []decision[Endpoints] {
	names := slices.SortedFunc(maps.Keys(s.staleEndpoints), compareNames)
	decisions := make([]decision[Endpoints], len(names))
	for i, name := range names {
		decisions[i].name = name
		from := s.firstSpeaker(name)
		if owner := s.owner(name); owner != nil && owner.speaksOf(name) {
			from = owner
		}
		if from != nil {
			decisions[i].value, decisions[i].present = from.endpointsOf(name), true
		}
	}
	return decisions
}

// owner is the source that a Service is taken from, or nil.
func (s *store) owner(name types.NamespacedName) *contents {
	for _, c := range s.sources {
		if c.services[name] != nil {
			return c
		}
	}
	return nil
}

// firstSpeaker is the first source that says something about a Service's
// endpoints, or nil.
func (s *store) firstSpeaker(name types.NamespacedName) *contents {
	for _, c := range s.sources {
		if c.speaksOf(name) {
			return c
		}
	}
	return nil
}

// endpointsOf is what a source that speaks of a Service's endpoints says:
// its slices, and only where it has none its v1.Endpoints.
func (c *contents) endpointsOf(name types.NamespacedName) Endpoints {
	e := Endpoints{Namespace: name.Namespace, Name: name.Name, Source: c.source}
	if of := c.slicesOf[name]; len(of) > 0 {
		e.Slices = slices.SortedFunc(maps.Values(of), func(a, b *discoveryv1.EndpointSlice) int {
			return strings.Compare(a.Name, b.Name)
		})
	} else {
		e.Endpoints = c.endpoints[name]
	}
	return e
}

func (s Service) key() types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
}

func (e Endpoints) key() types.NamespacedName {
	return types.NamespacedName{Namespace: e.Namespace, Name: e.Name}
}

// compareNames orders by namespace, then name. Comparing "namespace/name" as
// one string would put default-2/a before default/a.
func compareNames(a, b types.NamespacedName) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// problems lists the problems of all sources, sorted: what they report about
// themselves and what the merge finds in what they say.
func (s *store) problems() []service.Problem {
	var all []service.Problem
	for _, c := range s.sources {
		before := len(all)
		all = append(all, c.status.Problems...)
		all = slices.AppendSeq(all, maps.Values(c.shadowed))
		all = slices.AppendSeq(all, maps.Values(c.nameless))
		if s.late && !c.delivered() {
			all = append(all, problemNotDelivered(c.source, c.status.Err))
		}
		if c.ended != nil {
			all = append(all, problemEnded(c.source, c.ended))
		}
		c.problems = len(all) - before
	}
	slices.SortFunc(all, service.Problem.Compare)
	return slices.Clip(all)
}

func (s *store) sourceInfos() []SourceInfo {
	infos := make([]SourceInfo, len(s.sources))
	for i, c := range s.sources {
		infos[i] = SourceInfo{
			Name:      c.source,
			Delivered: c.delivered(),
			Updated:   c.updated,
			Checked:   c.status.Checked,
			Services:  len(c.services),
			Endpoints: len(c.slices) + len(c.endpoints),
			Problems:  c.problems,
		}
		if err := cmp.Or(c.ended, c.status.Err); err != nil {
			infos[i].Err = err.Error()
		}
	}
	return infos
}

func problemShadowed(name types.NamespacedName, source, by string) service.Problem {
	return service.Problem{
		Object: "Service " + name.String(),
		Reason: ReasonShadowedBySource,
		Detail: fmt.Sprintf("source %q has it too, but source %q precedes and is the one that is served", source, by),
		Advice: "remove or rename one of the two, or change the order of the sources",

		Service: service.ServiceRef{Source: source, Namespace: name.Namespace, Name: name.Name},
	}
}

func problemNameless(name types.NamespacedName, source string) service.Problem {
	return service.Problem{
		Object: "EndpointSlice " + name.String(),
		Field:  "metadata.labels[" + discoveryv1.LabelServiceName + "]",
		Reason: ReasonNoServiceName,
		Detail: fmt.Sprintf("the slice from source %q does not say whose endpoints it lists, so nobody gets them", source),
		Advice: "set the label to the name of a Service in the same namespace",
	}
}

func problemNotDelivered(source string, failing error) service.Problem {
	p := service.Problem{
		Object: "Source " + source,
		Reason: ReasonSourceNotDelivered,
		Detail: "has not delivered its first full state in time; what the other sources say is served, and nothing is removed",
		Advice: "see why it is slow, or leave it out of the configuration",
	}
	if failing != nil {
		p.Detail += ": " + failing.Error()
	}
	return p
}

func problemEnded(source string, why error) service.Problem {
	return service.Problem{
		Object: "Source " + source,
		Reason: ReasonSourceEnded,
		Detail: "sends no more updates, its last state is still served: " + why.Error(),
		Advice: "mend the cause and start the proxy again",
	}
}
