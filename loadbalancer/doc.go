// Package loadbalancer decides which endpoint of a service port a client's
// next connection or UDP flow goes to.
//
// A [Group] balances one service.Key. The life of a connection in it:
//
//  1. Pick names an endpoint: the one that the client's last connection went
//     to where the Service asks for ClientIP affinity, else the one whose turn
//     it is. With affinity the choice is written down at once, so that ten
//     connections that a browser opens together go to one endpoint.
//  2. The caller dials. The group knows nothing of it and holds no lock.
//  3. Where the dial works, Succeeded says so. The endpoint's rest, if it had
//     one, is over, and the client's affinity is with the endpoint that it
//     really got.
//  4. Where it fails, Failed says so and the endpoint rests: a second at
//     first, twice as long each further time, thirty at most. The caller
//     picks again, naming what it tried, and the client's affinity moves along.
//
// # Turns
//
// Endpoints stand in a ring and are picked in turn. An Update takes out those
// that left and puts new ones where they are picked last; everyone else keeps
// place, and the turn stays where it was. So endpoints that stay are picked
// equally often, within one, whatever comes and goes around them.
//
// # Rests
//
// An endpoint that rests is passed over, and keeps its turn. Where every
// endpoint that was not tried rests, resting tells none of them apart and they
// are picked as if none did: an only endpoint is always picked, and after an
// outage of the network all come back side by side. When a rest ends, one
// connection puts the endpoint to the trial while the others still pass it
// over; see [Group.Failed].
//
// # Affinity
//
// Affinity is per group, so two ports of a Service may send a client to
// different pods, as with kube-proxy. It is by client address alone, whatever
// portal the client came by; an IPv4 address mapped into IPv6 is the IPv4
// address. An entry counts from its last use, so a changed timeout holds at
// once for those that exist; it never brings back one that was over. An entry
// is void when its endpoint leaves, even if one comes back at that address.
//
// # Local endpoints
//
// Some clients of a service port may have to stay on this node (traffic
// policies). [Group.Local] picks for them, among endpoints of their own, which
// may be among the others or not; see [Group.UpdateSets]. Each of the two sets
// has turns of its own, and both share rests and affinity.
//
// The package owns these decisions and their memory. It opens nothing, starts
// no goroutine, reads no clock but the one it is given, and imports the
// standard library and package service alone.
package loadbalancer
