package service

// UsesAll says whether some of the port's traffic may go to all Endpoints: that
// of its cluster addresses, unless internalTrafficPolicy is Local, and what pods
// and the node itself send to the other addresses.
func (p Port) UsesAll() bool {
	for _, portal := range p.Portals {
		if portal.Kind.IsExternal() || !p.InternalLocal {
			return true
		}
	}
	return false
}

// UsesLocal says whether some of the port's traffic must stay on this node.
func (p Port) UsesLocal() bool {
	for _, portal := range p.Portals {
		if p.IsLocal(portal.Kind) {
			return true
		}
	}
	return false
}

// IsLocal says whether traffic to portals of a kind must stay on this node,
// where it comes from outside of it.
func (p Port) IsLocal(k PortalKind) bool {
	if k.IsExternal() {
		return p.ExternalLocal
	}
	return p.InternalLocal
}

// IsExternal says whether a kind's portals are for clients outside of the
// cluster: externalTrafficPolicy speaks of them.
func (k PortalKind) IsExternal() bool { return k != ClusterIP }
