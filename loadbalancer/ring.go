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

// renew takes out the endpoints that are gone and puts those that joined at
// the end of the line. The others keep their order and the turn its place.
func (r *ring) renew(joined []*endpoint) {
	order := make([]*endpoint, 0, len(r.order)+len(joined))
	for n := range r.order {
		if ep := *r.place(n); !ep.gone {
			order = append(order, ep)
		}
	}
	order = append(order, joined...)
	r.order, r.front = order, 0
}
