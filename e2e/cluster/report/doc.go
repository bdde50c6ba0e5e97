// Command report writes docs/conformance.md from what Kubernetes' end-to-end
// specs have left in JUnit's form, a directory for each service proxy.
package main
