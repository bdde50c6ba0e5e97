// Package tuning sets what kube-proxy's flags ask of a node beside proxying:
// how willing the kernel is to end this process when memory runs out, and how
// many connections it tracks for how long.
//
// It writes to /proc and /sys, and only what differs. What it cannot write is a
// fault with its advice, and stops nothing.
package tuning
