// Package testpki makes the certificates of tests that speak TLS: an authority,
// and what it signs for servers and clients. It is for tests only.
package testpki
