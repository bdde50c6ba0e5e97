package main

import (
	"io"
	"math"

	"github.com/sirupsen/logrus"
)

// newLog is the program's log, on standard error.
func (m *Main) newLog(o *options) *logrus.Logger {
	log := logrus.New()
	log.SetOutput(m.Stderr)
	log.SetLevel(o.meant.level)
	if o.logFormat == "json" {
		log.SetFormatter(&logrus.JSONFormatter{})
	} else {
		// Colours only on a terminal, which logrus finds out, and only where
		// nobody minds (no-color.org).
		log.SetFormatter(&logrus.TextFormatter{FullTimestamp: true, DisableColors: m.Getenv("NO_COLOR") != ""})
	}
	return log
}

// klogVerbosity is up to which verbosity Kubernetes' libraries are to log. What
// is above 0 is for debugging, so it need not be made where nobody sees it.
func (o *options) klogVerbosity() int {
	const debug = 4
	if o.meant.level < logrus.DebugLevel {
		return 0
	}
	return min(max(debug, o.verbosity), math.MaxInt32) // klog knows no more
}

// silent is a log that nobody reads.
func silent() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}
