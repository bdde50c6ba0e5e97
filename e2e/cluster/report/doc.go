// Command report writes docs/conformance.md from what Kubernetes' end-to-end
// specs have left in JUnit's form, a directory for each service proxy, and from
// what was lost while the cluster changed, a file for each.
package main
