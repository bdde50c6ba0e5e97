package config

import (
	"time"

	"github.com/sirupsen/logrus"
)

// Outage is the time in which a source cannot see its origin. It tells the log
// of the beginning and of the end, once each; what goes wrong in between is for
// SourceStatus.
type Outage struct {
	Of  string // what cannot be read: "etcd"
	Log logrus.FieldLogger

	since time.Time // zero: all is well
}

// Tell takes what the source found when it last looked: nil while all is well.
// Delivered says whether its first full state is in.
func (o *Outage) Tell(err error, delivered bool) {
	switch {
	case err != nil && o.since.IsZero():
		o.since = time.Now()
		consequence := "what is known of it stays in use"
		if !delivered {
			consequence = "nothing is known of it yet"
		}
		o.Log.WithError(err).Warnf("%s cannot be read; %s, and it is tried again", o.Of, consequence)
	case err == nil && !o.since.IsZero():
		o.Log.Infof("%s is read again after %v", o.Of, time.Since(o.since).Round(time.Second))
		o.since = time.Time{}
	}
}
