package loadbalancer

import "time"

// Why is why an endpoint was picked.
type Why int

// The reasons for a pick. The constants are in no order.
const (
	ByTurn        Why = iota // there is no affinity
	NewAffinity              // by turn, and from now on it has the client's affinity
	ByAffinity               // it has the client's affinity
	AffinityMoved            // by turn, since the one with the client's affinity rests or was tried
	AllRest                  // by turn among those that rest: no other is left
)

// String says it to people, after "picked, since".
func (w Why) String() string {
	return [...]string{
		"it is its turn",
		"it is its turn, and from now on it has the client's affinity",
		"it has the client's affinity",
		"it is its turn, while the one with the client's affinity rests or was tried",
		"it is its turn among those that rest, and no other is left",
	}[w]
}

// why is why ep was chosen, while affine had the client's affinity.
func (g *Group) why(ep, affine *endpoint, now time.Time) Why {
	switch {
	case ep == affine:
		return ByAffinity
	case ep.rests(now):
		return AllRest
	case affine != nil:
		return AffinityMoved
	case g.affinity.timeout > 0:
		return NewAffinity
	}
	return ByTurn
}
