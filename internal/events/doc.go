// Package events writes Kubernetes Events: that this proxy has started, on its
// Node, and what is wrong with a Service, on the Service, where those who wrote
// it look first.
//
// An Event is written when a problem comes, and not again while it stands. How
// many there may be is limited twice: by the client, which must be the
// package's own, so that Events hold up nothing else, and by client-go's
// correlator, which joins similar Events and stops those of an object that has
// very many.
package events
