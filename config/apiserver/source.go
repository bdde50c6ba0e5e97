package apiserver

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/userspace-proxy/userspace-proxy/config"
)

// Source feeds the Services of an API server to a ServiceConfig. It is a
// config.Source. Its Run is for once.
type Source struct {
	name    string
	options Options
	wake    chan struct{} // capacity 1: there is something new to know

	mu        sync.Mutex // guards what follows against those that are not Run
	services  *mirror
	slices    *mirror
	node      *mirror   // nil: none is followed
	endpoints *mirror   // nil where there are EndpointSlices
	checked   time.Time // when everything was last found to be true

	// What follows is Run's alone.
	delivered bool
	told      *corev1.Node // what OnNode was last told
	nodeTold  bool         // it was told something
	lacking   string       // what that Node lacks to begin with
	said      config.SourceStatus
	outage    config.Outage
}

var _ config.Source = (*Source)(nil)

// New makes a source. Nothing is asked of the server before Run.
func New(name string, o Options) (*Source, error) {
	o.Defaults()
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("source %s: %w", name, err)
	}
	return &Source{name: name, options: o, wake: make(chan struct{}, 1), outage: config.Outage{Of: "the API server", Log: o.Log}}, nil
}

// Name is how people know the source.
func (s *Source) Name() string { return s.name }

// Run sends the first state of the server when it is whole, then what changes,
// and everything again each Options.Resync, until ctx ends.
func (s *Source) Run(ctx context.Context, to config.Updates) error {
	ctx, cancel := context.WithCancel(ctx)
	var watchdog sync.WaitGroup
	defer func() {
		cancel()
		watchdog.Wait()
		for _, m := range s.mirrors() {
			m.stop()
		}
	}()
	if err := s.start(ctx); err != nil {
		return err
	}
	watchdog.Go(func() { s.watch(ctx) })

	resync := time.NewTicker(s.options.Resync)
	defer resync.Stop()
	for {
		whole := false
		select {
		case <-ctx.Done():
			return nil
		case <-resync.C:
			whole = true
		case <-s.wake:
		}
		if err := s.chooseEndpoints(ctx, &whole); err != nil {
			return err
		}
		s.tellNode()
		if !s.send(ctx, to, whole) || !s.sendStatus(ctx, to) {
			return nil
		}
	}
}

// start starts to follow what every server has, and EndpointSlices.
func (s *Source) start(ctx context.Context) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	client := s.options.Client
	if s.services, err = follow(ctx, client, servicesOf(client), s.look); err != nil {
		return err
	}
	if s.slices, err = follow(ctx, client, slicesOf(client), s.look); err != nil {
		return err
	}
	if s.options.NodeName != "" {
		s.node, err = follow(ctx, client, nodeOf(client, s.options.NodeName), s.look)
	}
	return err
}

// Service is a Service as the API server has it, as far as it is kept, or nil.
// It may be called at any time.
func (s *Source) Service(namespace, name string) *corev1.Service {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.services == nil {
		return nil
	}
	svc, _, _ := s.services.informer.GetStore().GetByKey(namespace + "/" + name)
	found, _ := svc.(*corev1.Service)
	return found
}

// look has Run look at what is new.
func (s *Source) look() {
	select {
	case s.wake <- struct{}{}:
	default: // it is to look already
	}
}

// mirrors is all that are followed.
func (s *Source) mirrors() []*mirror {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*mirror
	for _, m := range []*mirror{s.services, s.slices, s.endpoints, s.node} {
		if m != nil {
			all = append(all, m)
		}
	}
	return all
}

// synced says whether the first state of Services and endpoints is in. It is
// called by Run, or with mu held.
func (s *Source) synced() bool {
	return s.services.synced() && (s.slices.synced() || s.endpoints != nil && s.endpoints.synced())
}

// chooseEndpoints goes over to v1.Endpoints where the server has no
// EndpointSlices, and back when it has them. The reflector for them keeps
// trying, at its slow pace. Once there were slices, a server that says that it
// has none is taken for broken.
func (s *Source) chooseEndpoints(ctx context.Context, whole *bool) error {
	switch {
	case s.endpoints == nil && !s.slices.synced() && apierrors.IsNotFound(s.slices.failing()):
		s.options.Log.Info("the API server has no EndpointSlices (discovery.k8s.io/v1), so its v1 Endpoints are followed until it has")
		m, err := follow(ctx, s.options.Client, endpointsOf(s.options.Client), s.look)
		if err != nil {
			return err
		}
		s.setEndpoints(m)
	case s.endpoints != nil && s.slices.synced():
		s.options.Log.Info("the API server has EndpointSlices now, so v1 Endpoints are no longer followed")
		s.endpoints.stop()
		s.setEndpoints(nil)
		*whole = true
	}
	return nil
}

func (s *Source) setEndpoints(m *mirror) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endpoints = m
}

// tellNode tells of the Node where something has changed.
func (s *Source) tellNode() {
	if s.node == nil || !s.node.synced() {
		return
	}
	s.node.take() // there is but one
	var now *corev1.Node
	if nodes := objectsOf[*corev1.Node](s.node); len(nodes) > 0 {
		now = nodes[0].DeepCopy()
		now.ResourceVersion = "" // changes with what does not matter
	}
	if s.nodeTold && reflect.DeepEqual(s.told, now) {
		return
	}
	if now == nil {
		s.options.Log.Warnf("the API server has no Node %q, so nothing is known of its zone; if the Node of this machine has another name, give it with --hostname-override", s.options.NodeName)
	}
	s.told, s.nodeTold = now, true
	if s.options.NodeLacks != nil {
		s.lacking = s.options.NodeLacks(now)
	}
	s.options.OnNode(now)
}

// nodeIsEnough says whether the first state may be sent with what is known of the
// Node. It is waited for, so that its zone counts from the start, but where nothing
// in it is needed not for longer than there is hope.
func (s *Source) nodeIsEnough() bool {
	switch {
	case s.node == nil:
		return true
	case s.options.NodeLacks != nil:
		return s.nodeTold && s.lacking == ""
	}
	return s.nodeTold || s.node.failing() != nil
}

// send sends what has changed since the last time, or everything, endpoints
// first, so that a Service never shows without its endpoints. It gives up when
// ctx ends, and sends nothing before the first state is whole.
func (s *Source) send(ctx context.Context, to config.Updates, whole bool) bool {
	if !s.delivered {
		if !s.nodeIsEnough() || !s.synced() {
			return true
		}
		s.delivered, whole = true, true
	}
	services, slices := s.services.take(), s.slices.take()
	var endpoints map[string]struct{}
	if s.endpoints != nil {
		endpoints = s.endpoints.take()
	}
	if whole {
		return to.Send(ctx, s.allEndpoints(), s.allServices())
	}
	if s.endpoints != nil {
		return to.Send(ctx, s.changedEndpoints(endpoints), s.changedServices(services))
	}
	return to.Send(ctx, s.changedSlices(slices), s.changedServices(services))
}
