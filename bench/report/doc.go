// Package report turns what a benchmark measured into medians, ratios, verdicts
// and text. It is pure: no clock, no machine, no file.
package report
