// Package kubelog leads what Kubernetes' libraries log, by klog, into the log of
// this program.
//
// klog has one log for the whole process and cannot be led elsewhere while
// somebody uses it. So whoever owns the process does it, once, before anything
// of those libraries runs.
package kubelog
