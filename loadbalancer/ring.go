package loadbalancer

import "slices"

// ring is the order of turns. Other orders (by open connections, say) would
// stand beside it with the same two methods.
type ring struct {
	order []*endpoint
	front int // index of the one whose turn is next
}

// place is where the endpoint stands that has n turns before its own.
func (r *ring) place(n int) **endpoint {
	return &r.order[(r.front+n)%len(r.order)]
}

// next is the first endpoint in turn that may be picked; nil where none may.
// It goes to the end of the line. Those passed over stay at the front: they
// lose no turn to what one connection, or a rest, had against them.
func (r *ring) next(may func(*endpoint) bool) *endpoint {
	for n := range r.order {
		ep := *r.place(n)
		if !may(ep) {
			continue
		}
		for ; n > 0; n-- {
			*r.place(n) = *r.place(n - 1)
		}
		*r.place(0) = ep
		r.front = (r.front + 1) % len(r.order)
		return ep
	}
	return nil
}

// has says whether there is one that may be picked.
func (r *ring) has(may func(*endpoint) bool) bool { return slices.ContainsFunc(r.order, may) }

// renew makes these the endpoints. Those that are in already keep their order and
// the turn its place; the others are put at the end of the line.
func (r *ring) renew(members []*endpoint, in map[*endpoint]bool) {
	order := make([]*endpoint, 0, len(members))
	had := make(map[*endpoint]bool, len(r.order))
	for n := range r.order {
		if ep := *r.place(n); in[ep] {
			order = append(order, ep)
			had[ep] = true
		}
	}
	for _, ep := range members {
		if !had[ep] {
			order = append(order, ep)
		}
	}
	r.order, r.front = order, 0
}
