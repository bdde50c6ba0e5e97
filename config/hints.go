package config

import (
	discoveryv1 "k8s.io/api/discovery/v1"
)

// hinted reads the hints of candidates. What it returns says why a usable one
// is not meant for this node; empty where it is.
//
// As in kube-proxy hints count where all usable endpoints have them and at
// least one names this node: those for nodes, or else those for zones. Where
// neither holds, hints leave some clients without an endpoint, so they are
// ignored.
func (r *resolver) hinted(list []candidate) func(candidate) string {
	forNode := func(h *discoveryv1.EndpointHints) (named, ours bool) {
		for _, n := range h.ForNodes {
			ours = ours || n.Name == r.node.Name
		}
		return len(h.ForNodes) > 0, ours && r.node.Name != ""
	}
	forZone := func(h *discoveryv1.EndpointHints) (named, ours bool) {
		for _, z := range h.ForZones {
			ours = ours || z.Name == r.node.Zone
		}
		return len(h.ForZones) > 0, ours && r.node.Zone != ""
	}
	switch {
	case hintsHold(list, forNode):
		return whyNot("meant for other nodes", forNode)
	case hintsHold(list, forZone):
		return whyNot("meant for other zones", forZone)
	}
	return func(candidate) string { return "" }
}

// hintsHold says whether all usable candidates have hints of a kind, and one
// has one for us.
func hintsHold(list []candidate, kind func(*discoveryv1.EndpointHints) (named, ours bool)) bool {
	some := false
	for _, c := range list {
		if !c.usable() {
			continue
		}
		if c.hints == nil {
			return false
		}
		named, ours := kind(c.hints)
		if !named {
			return false
		}
		some = some || ours
	}
	return some
}

// whyNot says why of the candidates that have no hint of a kind for us.
func whyNot(why string, kind func(*discoveryv1.EndpointHints) (named, ours bool)) func(candidate) string {
	return func(c candidate) string {
		if _, ours := kind(c.hints); ours {
			return ""
		}
		return why
	}
}
