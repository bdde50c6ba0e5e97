package config

import (
	"context"
	"slices"
)

// Send sends what belongs together as one change: endpoints first, so that a
// Service never shows without its endpoints, and each list in its order. It
// sets More, and leaves out what would add or remove nothing. It gives up, and
// returns false, when ctx ends.
func (u Updates) Send(ctx context.Context, endpoints []EndpointsUpdate, services []ServiceUpdate) bool {
	endpoints = slices.DeleteFunc(slices.Clone(endpoints), EndpointsUpdate.idle)
	services = slices.DeleteFunc(slices.Clone(services), ServiceUpdate.idle)
	for i, e := range endpoints {
		e.More = i+1 < len(endpoints) || len(services) > 0
		if !pass(ctx, u.Endpoints, e) {
			return false
		}
	}
	for i, s := range services {
		s.More = i+1 < len(services)
		if !pass(ctx, u.Services, s) {
			return false
		}
	}
	return true
}

// Tell sends what a source says about itself. Like Send it gives up when ctx ends.
func (u Updates) Tell(ctx context.Context, s SourceStatus) bool { return pass(ctx, u.Status, s) }

// idle says whether an update changes nothing.
func (u EndpointsUpdate) idle() bool { return u.Op != SET && len(u.Slices)+len(u.Endpoints) == 0 }
func (u ServiceUpdate) idle() bool   { return u.Op != SET && len(u.Services) == 0 }

func pass[T any](ctx context.Context, to chan<- T, what T) bool {
	select {
	case to <- what:
		return true
	case <-ctx.Done():
		return false
	}
}
