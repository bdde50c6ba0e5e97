package apiserver

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
)

// Options says what to follow.
type Options struct {
	// Client is a client of the server.
	Client kubernetes.Interface
	// NodeName is the name of this machine's Node; with none no Node is followed.
	NodeName string
	// OnNode is called with the Node when it first comes and whenever something
	// changes that matters: its labels of zone and host name, addresses, pod
	// ranges, taints, that it is being deleted; and with nil when it is gone or
	// turns out to be missing. Calls come one at a time, before the updates that
	// came after it; what they get is only theirs to read. May be nil.
	OnNode func(*corev1.Node)
	// NodeLacks is what keeps a Node, or none (nil), from being enough to begin
	// with; empty for nothing. The first state is sent only when there is nothing;
	// it means nothing afterwards, and without NodeName. Nil: any Node will do, and
	// that there is none.
	NodeLacks func(*corev1.Node) string
	// Resync is how often the whole state is sent without a change; 0 means 15 min.
	Resync time.Duration
	// Check is how often the server is asked whether it is still there and what
	// is known still true; it has half of that to answer. 0 means 30 s.
	Check time.Duration
	// Log hears of the start and the end of each outage. Nil is silence.
	Log logrus.FieldLogger
}

// Defaults fills in what is not set.
func (o *Options) Defaults() {
	const (
		resync = 15 * time.Minute
		check  = 30 * time.Second
	)
	if o.OnNode == nil {
		o.OnNode = func(*corev1.Node) {}
	}
	if o.Resync == 0 {
		o.Resync = resync
	}
	if o.Check == 0 {
		o.Check = check
	}
	if o.Log == nil {
		silent := logrus.New()
		silent.SetOutput(io.Discard)
		o.Log = silent
	}
}

// Validate tells all that is wrong with the options.
func (o *Options) Validate() error {
	var faults *multierror.Error
	if o.Client == nil {
		faults = multierror.Append(faults, errors.New("there is no client to reach the API server with"))
	}
	if o.Resync < 0 {
		faults = multierror.Append(faults, fmt.Errorf("the resync period %v is negative", o.Resync))
	}
	if o.Check < 0 {
		faults = multierror.Append(faults, fmt.Errorf("the check period %v is negative", o.Check))
	}
	return faults.ErrorOrNil()
}
