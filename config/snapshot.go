package config

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// Snapshot is the merge of all sources at one moment. It is whole, never a
// difference, and read only: handlers and the store share its objects.
type Snapshot struct {
	Services  []Service   // sorted by namespace and name; one for each name, from the source that precedes
	Endpoints []Endpoints // sorted by namespace and name; one for each Service name that any source speaks of
	Complete  bool        // every source has delivered its first full state; until then nothing may be removed
	Sources   []SourceInfo
	Problems  []service.Problem // of merging and of the sources, sorted
}

// Service is a Service and the source that it is taken from.
type Service struct {
	*corev1.Service
	Source string
}

// Endpoints is what one source says about the endpoints of one Service name:
// slices, or where it has none, a v1.Endpoints object.
type Endpoints struct {
	Namespace, Name string // of the Service
	Source          string
	Slices          []*discoveryv1.EndpointSlice // sorted by name
	Endpoints       *corev1.Endpoints            //nolint:staticcheck // see EndpointsUpdate
}

// SourceInfo tells people how a source is doing.
type SourceInfo struct {
	Name      string
	Delivered bool      // its first full state is in
	Updated   time.Time // when it last sent an update
	Checked   time.Time // when it last saw its origin whole; zero where it does not say
	Services  int       // objects it has now
	Endpoints int       // EndpointSlices and Endpoints it has now
	Err       string    // why it is failing; empty while it works
	Problems  int
}

// Handler is told of snapshots.
type Handler interface {
	// OnUpdate gets the newest snapshot. Calls come one at a time, in order;
	// snapshots that a slow handler had no time for are skipped, never the
	// last one.
	OnUpdate(Snapshot)
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(Snapshot)

// OnUpdate calls f.
func (f HandlerFunc) OnUpdate(s Snapshot) { f(s) }
