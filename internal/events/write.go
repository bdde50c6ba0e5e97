package events

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
)

// Run writes Events until ctx ends and none waits, or Options.Flush is over.
func (r *Recorder) Run(ctx context.Context) error {
	work, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(r.options.Flush, giveUp) })()
	for {
		for e := r.next(); e != nil; e = r.next() {
			r.write(work, e)
		}
		select {
		case <-r.wake:
		case <-ctx.Done():
			if len(r.wake) == 0 {
				return nil
			}
		}
	}
}

// next is the Event that has waited longest, or nil.
func (r *Recorder) next() *corev1.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 {
		return nil
	}
	e := r.waiting[0]
	r.waiting = r.waiting[1:]
	return e
}

// write writes an Event, unless there are too many like it. It tries again
// while the server gives no answer, and gives up when ctx ends.
func (r *Recorder) write(ctx context.Context, e *corev1.Event) {
	const first, longest = time.Second, time.Minute
	result, err := r.correlator.EventCorrelate(e)
	if err != nil || result.Skip {
		return
	}
	for pause := first; ctx.Err() == nil; pause = min(2*pause, longest) {
		written, err := r.send(ctx, result)
		var status apierrors.APIStatus
		switch {
		case err == nil:
			r.correlator.UpdateState(written)
			r.refused = false
			return
		case errors.As(err, &status):
			r.tellRefused(err)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// send creates an Event, or raises the count of one that is there already.
func (r *Recorder) send(ctx context.Context, what *record.EventCorrelateResult) (*corev1.Event, error) {
	events := r.options.Client.CoreV1().Events(what.Event.Namespace)
	if what.Event.Count > 1 {
		e, err := events.Patch(ctx, what.Event.Name, types.StrategicMergePatchType, what.Patch, metav1.PatchOptions{})
		if !apierrors.IsNotFound(err) {
			return e, err
		}
		what.Event.ResourceVersion = "" // it has expired, so that there is a new one
	}
	return events.Create(ctx, what.Event, metav1.CreateOptions{})
}

// tellRefused tells the log that the server does not want Events, once until
// it takes one. A namespace that is being deleted takes none, and that is well.
func (r *Recorder) tellRefused(err error) {
	if r.refused || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return
	}
	r.refused = true
	log := r.options.Log.WithError(err)
	if apierrors.IsForbidden(err) {
		log.Warn("the API server refuses Events: let the account create and patch events, as the cluster role system:node-proxier does")
		return
	}
	log.Warn("the API server refuses Events")
}
