// Package layout sets text for terminals: tables whose columns are aligned,
// also where characters are two columns wide or none, and paragraphs that are
// no wider than they may be.
//
// What it sets may come from anywhere (names in manifests, errors of other
// programs), so it lets nothing through that a terminal would obey: see Clean.
// Colours are the caller's choice, by a Style. The package does no I/O.
package layout
