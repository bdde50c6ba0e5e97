package main

import (
	"context"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// firewall knows whether one on this node keeps out what rules lead here.
type firewall struct {
	rules  guarded // nil: none can
	period time.Duration
	log    logrus.FieldLogger

	mu    sync.Mutex
	found []service.Problem // at the last look that told anything
}

// run looks every period until ctx ends.
func (f *firewall) run(ctx context.Context) error {
	look := time.NewTicker(f.period)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
		if f.rules == nil {
			continue
		}
		found, err := f.rules.KeptOut(ctx)
		if err != nil {
			f.log.WithError(err).Debug("cannot look for a firewall that drops, trying again") // the rules are watched too, and what is wrong with nft is told there
			continue
		}
		f.mu.Lock()
		f.found = found
		f.mu.Unlock()
	}
}

func (f *firewall) problems() []service.Problem {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.found
}
