// Package metric makes metrics of definitions that say, beside the name, what a
// metric means to people: when somebody should worry, and what to do then.
// docs/metrics.md is written from what is registered.
//
// It owns the form of a definition, not the metrics: each package has its own.
package metric
