package main

import (
	"context"
	"errors"
)

// actor does something until its context ends, and returns when everything
// that it started has ended.
type actor func(ctx context.Context) error

// together runs actors side by side. The first that returns ends the others,
// and together returns when all have returned, with the errors of all.
func together(ctx context.Context, actors ...actor) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error)
	for _, a := range actors {
		go func() { ended <- a(ctx) }()
	}
	var errs []error
	for range actors {
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			errs = append(errs, err)
		}
		cancel()
	}
	return errors.Join(errs...)
}

// either is a context that ends with the first of two. Its values are a's.
func either(a, b context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(a)
	stop := context.AfterFunc(b, cancel)
	return ctx, func() { stop(); cancel() }
}
