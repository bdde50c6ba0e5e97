package config

import (
	"fmt"
	"strconv"
	"strings"
)

// annotationMaxConnections bounds the TCP connections that are open to a
// Service at once, on all of its ports together; 0 is no limit.
const annotationMaxConnections = "userspace-proxy/max-connections"

// readAnnotations reads what a Service asks of this proxy and of no other.
func (r *resolver) readAnnotations(w *want) {
	w.maxConnections = r.readNumber(w, annotationMaxConnections)
}

// readNumber reads an annotation that is a number; 0 where there is none, or
// none that can be read.
func (r *resolver) readNumber(w *want, name string) int {
	text, there := w.svc.Annotations[name]
	if !there {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32)
	if err != nil || n < 0 {
		r.reportService(w, wholeField("metadata.annotations["+name+"]"), ReasonInvalidAnnotation,
			fmt.Sprintf("%q is not a number from 0 to 2147483647; there is no limit", text), "write a number; 0 is no limit")
		return 0
	}
	return int(n)
}
