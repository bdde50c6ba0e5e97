package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/userspace-proxy/userspace-proxy/internal/status"
)

// TestAddHits: before there are rules nobody asks for their counters, which
// would be an error that people see.
func TestAddHits(t *testing.T) {
	t.Parallel()
	s := &server{}
	s.hits.read = func(context.Context) (hits, error) { return hits{}, errors.New("no such table") }
	var r status.Report
	s.addHits(&r)
	assert.Empty(t, r.Hits.Error)
	r.Synced = time.Now()
	s.addHits(&r)
	assert.Equal(t, "no such table", r.Hits.Error)
}
