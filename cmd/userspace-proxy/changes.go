package main

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/userspace-proxy/userspace-proxy/config"
)

// changes count what has changed from one snapshot to the next, and remember
// since when what is not in force yet was wanted.
type changes struct {
	since time.Time       // changes that were wanted before are not this process's to answer for
	last  config.Snapshot // that was noted

	services, endpoints changeCount
	triggers            []time.Time // when what has changed since was wanted, as EndpointSlices tell
}

// changeCount counts objects that came, went or changed.
type changeCount struct{ total, pending int }

func (c *changeCount) add(n int) { c.total, c.pending = c.total+n, c.pending+n }

// note compares with the snapshot before. A list in which nothing changed is
// the very one that it was, and costs nothing.
func (c *changes) note(next config.Snapshot) {
	c.services.add(differences(c.last.Services, next.Services, func(a, b config.Service) int {
		return compareNames(a.Namespace, a.Name, b.Namespace, b.Name)
	}, func(before, now config.Service) bool { return before == now }))
	c.endpoints.add(differences(c.last.Endpoints, next.Endpoints, func(a, b config.Endpoints) int {
		return compareNames(a.Namespace, a.Name, b.Namespace, b.Name)
	}, c.sameEndpoints))
	c.last = next
}

// sameEndpoints compares those of one Service, of which either may have none.
func (c *changes) sameEndpoints(before, now config.Endpoints) bool {
	same := before.Source == now.Source && before.Endpoints == now.Endpoints && slices.Equal(before.Slices, now.Slices)
	for _, slice := range now.Slices {
		if same || slices.Contains(before.Slices, slice) {
			continue
		}
		if t := triggerTime(slice); t.After(c.since) {
			c.triggers = append(c.triggers, t)
		}
	}
	return same
}

// triggerTime is when a Pod or Service changed so that the slice had to change;
// zero where it does not say.
func triggerTime(slice *discoveryv1.EndpointSlice) time.Time {
	t, err := time.Parse(time.RFC3339Nano, slice.Annotations[corev1.EndpointsLastChangeTriggerTime])
	if err != nil {
		return time.Time{} // it is the controller's, and nobody can mend it here
	}
	return t
}

// done is called when everything that was noted is in force. It tells how long
// after it was wanted each change was.
func (c *changes) done(at time.Time, took func(time.Duration)) {
	for _, t := range c.triggers {
		took(max(at.Sub(t), 0)) // clocks of two machines may differ
	}
	c.triggers, c.services.pending, c.endpoints.pending = nil, 0, 0
}

// differences counts the elements by which two sorted lists differ. An element
// that is in one list only is compared with the zero value.
func differences[T any](before, now []T, compare func(T, T) int, same func(before, now T) bool) int {
	if len(before) == len(now) && (len(now) == 0 || &before[0] == &now[0]) {
		return 0
	}
	var none T
	n := 0
	for len(before) > 0 || len(now) > 0 {
		a, b := none, none
		switch order := orderOfFirst(before, now, compare); {
		case order < 0:
			a, before = before[0], before[1:]
		case order > 0:
			b, now = now[0], now[1:]
		default:
			a, b, before, now = before[0], now[0], before[1:], now[1:]
		}
		if !same(a, b) {
			n++
		}
	}
	return n
}

func orderOfFirst[T any](a, b []T, compare func(T, T) int) int {
	switch {
	case len(a) == 0:
		return 1
	case len(b) == 0:
		return -1
	}
	return compare(a[0], b[0])
}

func compareNames(namespaceA, nameA, namespaceB, nameB string) int {
	if order := strings.Compare(namespaceA, namespaceB); order != 0 {
		return order
	}
	return strings.Compare(nameA, nameB)
}
