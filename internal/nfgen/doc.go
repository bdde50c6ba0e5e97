// Package nfgen asks the kernel for the generation of its nf_tables rules: a
// number that becomes another with every change that anybody makes to any of
// them in the network namespace. To ask takes microseconds and no command,
// however many rules there are, so it tells cheaply that there is nothing to
// look for.
package nfgen
