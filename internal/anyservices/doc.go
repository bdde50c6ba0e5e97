// Package anyservices makes thousands of Services by chance, valid and not, for
// tests of what is made of them: resolved for the node of a nettest.Bed, with
// listeners as a proxy would open them, and with what must become of a packet to
// each of their portals.
//
// It is for tests only, and pure.
package anyservices
