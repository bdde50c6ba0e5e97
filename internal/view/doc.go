// Package view turns a report of a running proxy into what people read on a
// terminal: an overview, the connections and flows, the problems. It is pure;
// internal/status fetches the report, and cmd prints it.
//
// What it says of one thing stands on one line, in columns whose order does not
// change. Scripts that want more than that read JSON.
package view
