package load

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// Run does the job. It calls ready when everything is set up and the measured
// part would begin, which it does when ready returns. An error means that there
// is no result; what fails in the measured part is counted instead.
func (j Job) Run(ready func() error) (Result, error) {
	if err := j.Validate(); err != nil {
		return Result{}, err
	}
	switch j.Mode {
	case Bulk:
		return runWorkers(j, newPusher, ready)
	case Idle:
		return j.idle(ready)
	default:
		return runWorkers(j, newExchanger, ready)
	}
}

// worker is one loop with its share of the flows.
type worker interface {
	// open sets up the flows.
	open() error
	// run works until the duration is over.
	run()
	// report adds what it did to the result and its times to the histogram.
	report(*Result, *Histogram)
	// close closes all descriptors.
	close()
}

// runWorkers runs one worker for each CPU, none without a flow.
func runWorkers[W worker](j Job, newWorker func(share Job) (W, error), ready func() error) (Result, error) {
	loops := min(j.Flows, runtime.NumCPU())
	workers := make([]W, 0, loops)
	defer func() {
		for _, w := range workers {
			w.close()
		}
	}()
	for i := range loops {
		share := j
		share.Flows = (j.Flows + i) / loops
		w, err := newWorker(share)
		if err != nil {
			return Result{}, err
		}
		workers = append(workers, w)
		if err := w.open(); err != nil {
			return Result{}, fmt.Errorf("setting up flows to %s: %w", j.Addr, err)
		}
	}
	if err := ready(); err != nil {
		return Result{}, err
	}

	start := time.Now()
	var wg sync.WaitGroup
	for _, w := range workers {
		wg.Go(w.run)
	}
	wg.Wait()
	result, times := Result{Elapsed: time.Since(start)}, new(Histogram)
	for _, w := range workers {
		w.report(&result, times)
	}
	if j.Mode != Bulk {
		result.Ops = times.Count()
		result.P50, result.P99 = times.Quantile(0.5), times.Quantile(0.99)
	}
	if result.Elapsed <= 0 {
		return Result{}, errors.New("the clock stands still")
	}
	return result, nil
}
