package config

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// Operation says what an update does to the objects of the source that sent it.
type Operation string

// The operations of an update, as the first service proxy had them.
const (
	SET    Operation = "SET"    // these are all objects of the kind; an empty list clears
	ADD    Operation = "ADD"    // these are new or changed
	REMOVE Operation = "REMOVE" // these are gone; only namespace and name are read
)

// ServiceUpdate is what a source says about Services. Its objects are handed
// over: nobody changes them afterwards.
type ServiceUpdate struct {
	Op       Operation
	Services []*corev1.Service
	// More: the source's next update, on whichever channel, belongs to the same
	// change, and nobody is shown the one without the other. It has to follow
	// at once, see HoldLimit.
	More bool
}

// EndpointsUpdate is what a source says about endpoints. A SET sets
// EndpointSlices and Endpoints alike: the list that is empty is cleared.
type EndpointsUpdate struct {
	Op        Operation
	Slices    []*discoveryv1.EndpointSlice
	Endpoints []*corev1.Endpoints //nolint:staticcheck // deprecated upstream, still read for Services without slices
	More      bool                // as in ServiceUpdate
}

// SourceStatus is what a source says about itself; each replaces the last.
type SourceStatus struct {
	Problems []service.Problem // what it could not read; it keeps serving its last good state
	Err      error             // why it is failing now; nil while it works
	Checked  time.Time         // when it last saw its origin whole
}

// Updates are the channels of one source into a ServiceConfig. A source is the
// only sender on its channels and never closes them; it must give up a send
// when its context ends. A send is taken at once and held no longer than the
// merge of a store takes.
type Updates struct {
	Services  chan<- ServiceUpdate
	Endpoints chan<- EndpointsUpdate
	Status    chan<- SourceStatus
}

// Source feeds one origin of Services into a ServiceConfig.
//
// Its first SET on both channels says that its first full state is in, be it
// empty. It lives until its context ends and returns when everything it
// started has ended; an error before the first SET is a wrong configuration,
// later failures are told by SourceStatus while the last good state stands.
type Source interface {
	// Name is how people know it: "file", "apiserver", "etcd". It is unique in a ServiceConfig.
	Name() string
	// Run feeds updates until ctx ends.
	Run(ctx context.Context, to Updates) error
}
