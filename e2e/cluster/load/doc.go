// Command load is a steady load on Services: short connections, long ones, and
// datagrams. When it is told to end it prints, as a line of JSON, how many of each
// there were, and how many were lost, by cause. The backends are Kubernetes' agnhost
// netexec: they answer GET /hostname over TCP, and "echo 1" with "1" over UDP.
//
// The load does not adapt: what begins does not wait for what has begun before, so
// that a Service that hangs is seen by as many clients as one that works.
package main
