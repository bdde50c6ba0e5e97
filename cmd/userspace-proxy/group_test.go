package main

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func untilEnd(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestTogether(t *testing.T) {
	t.Parallel()
	one, two := errors.New("one"), errors.New("two")

	require.NoError(t, together(context.Background()))
	assert.NoError(t, together(context.Background(), untilEnd, func(context.Context) error { return nil }), "the first that ends ends the others")
	err := together(context.Background(), untilEnd,
		func(context.Context) error { return one },
		func(ctx context.Context) error { <-ctx.Done(); return two })
	assert.ErrorIs(t, err, one)
	assert.ErrorIs(t, err, two, "an error on the way out counts too")

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	assert.NoError(t, together(ctx, untilEnd), "being asked to end is no error")
}

func TestEither(t *testing.T) {
	t.Parallel()
	for range 2 {
		a, cancelA := context.WithCancel(context.Background())
		b, cancelB := context.WithCancel(context.Background())
		ctx, cancel := either(a, b)
		assert.NoError(t, ctx.Err())
		cancelB()
		<-ctx.Done()
		cancel()
		cancelA()
	}
}
