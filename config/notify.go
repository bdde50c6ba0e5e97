package config

import "context"

// Kinds says which lists of a snapshot a handler wants to be woken for.
type Kinds uint8

// The kinds, to be joined with |.
const (
	ServiceKind Kinds = 1 << iota
	EndpointsKind

	allKinds = ServiceKind | EndpointsKind
)

// subscription is a registered handler. Each has a goroutine of its own, so
// that a slow one holds up nobody else.
type subscription struct {
	kinds   Kinds
	handler Handler
	trigger chan struct{} // capacity 1: any number of changes are one reason to look
}

func newSubscription(kinds Kinds, h Handler) *subscription {
	return &subscription{kinds: kinds, handler: h, trigger: make(chan struct{}, 1)}
}

// wake makes the handler look at the newest snapshot when it next has time.
func (s *subscription) wake() {
	select {
	case s.trigger <- struct{}{}:
	default: // it is to look already
	}
}

// notify calls a handler with the newest snapshot whenever it was woken, until
// ctx ends. What the handler panics with is not caught: a proxy that goes on
// without one of its handlers looks healthy and is not.
func (c *ServiceConfig) notify(ctx context.Context, s *subscription) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.trigger:
		}
		if ctx.Err() != nil {
			return
		}
		s.handler.OnUpdate(c.take(s))
	}
}

// take returns the newest snapshot and takes back the triggers that it
// answers, so that a handler is not called twice with the same one.
func (c *ServiceConfig) take(s *subscription) Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-s.trigger:
	default:
	}
	return c.store.snapshot()
}
