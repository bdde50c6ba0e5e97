package config

// The reasons of the problems that Resolve reports. Each is the Reason of a
// service.Problem and a value of the metric's label, so none is ever renamed.
const (
	// Objects that are not well formed. What is wrong is left out, the rest is served.

	ReasonInvalidAddress         = "InvalidAddress"         // not an IP address, or not of the family it is said to be
	ReasonInvalidPort            = "InvalidPort"            // a port outside 1..65535
	ReasonInvalidNodePort        = "InvalidNodePort"        // a node port outside 1..65535, or one that the Service's type rules out
	ReasonInvalidProtocol        = "InvalidProtocol"        // neither TCP, UDP nor SCTP
	ReasonInvalidType            = "InvalidType"            // an unknown type of Service, taken as ClusterIP
	ReasonInvalidSessionAffinity = "InvalidSessionAffinity" // an unknown kind or a timeout out of range; the default holds
	ReasonInvalidTrafficPolicy   = "InvalidTrafficPolicy"   // neither Cluster nor Local; Cluster holds
	ReasonInvalidAnnotation      = "InvalidAnnotation"      // a value that cannot be read; the default holds
	ReasonInvalidSourceRange     = "InvalidSourceRange"     // not a CIDR
	ReasonDuplicatePort          = "DuplicatePort"          // two ports of one Service with one name or one number
	ReasonNoClusterIP            = "NoClusterIP"            // neither an address nor None
	ReasonPortNameMismatch       = "PortNameMismatch"       // there are endpoints, but none for the port's name

	// What the proxy does not do, or was told not to.

	ReasonUnsupportedProtocol    = "UnsupportedProtocol"    // SCTP
	ReasonUnsupportedAddressType = "UnsupportedAddressType" // a slice of names instead of addresses
	ReasonExternalIPsNotAllowed  = "ExternalIPsNotAllowed"  // --allow-external-ips=false
	ReasonFamilyMissing          = "FamilyMissing"          // the node has no address of a family that Services use
	ReasonNobodyAllowed          = "NobodyAllowed"          // source ranges of one family, and a load balancer address of the other
	ReasonLocalPodsUnknown       = "LocalPodsUnknown"       // what pods on this node send cannot be told from what comes from outside

	// What would do harm; see docs/adr/0004-claims-and-refusals.md.

	ReasonAddressConflict  = "AddressConflict"  // the address, port and protocol belong to another Service or its endpoint
	ReasonPortalIsEndpoint = "PortalIsEndpoint" // an externalIP at which the Service's own endpoint listens
	ReasonRefusedAddress   = "RefusedAddress"   // a portal that no Service may have
	ReasonRefusedEndpoint  = "RefusedEndpoint"  // an endpoint address at which nobody's backend can be
	ReasonEndpointLoop     = "EndpointLoop"     // an endpoint that leads back to the proxy
)
