package file

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/sirupsen/logrus"
)

// Stdin is the path that means standard input.
const Stdin = "-"

// Options says what to read.
type Options struct {
	// Paths are files and directories, in the order of their precedence. Stdin
	// is standard input, which is read once, to its end, and then stays.
	Paths []string
	// Stdin is read where Paths names it.
	Stdin io.Reader
	// Poll is how often everything is looked at even where no watch tells of a
	// change; 0 means 10 s.
	Poll time.Duration
	// NodeAddr is the node's own address, on which Services of the first
	// proxy's form listen. Without it that form is an error.
	NodeAddr netip.Addr
	// Log hears of watches that cannot be made. Faults are not logged here but
	// returned or reported as problems. Nil is silence.
	Log logrus.FieldLogger
}

// Defaults fills in what is not set.
func (o *Options) Defaults() {
	const poll = 10 * time.Second
	if o.Poll == 0 {
		o.Poll = poll
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
	if len(o.Paths) == 0 {
		faults = multierror.Append(faults, errors.New("no path to read Services from"))
	}
	for _, p := range o.Paths {
		switch {
		case p == "":
			faults = multierror.Append(faults, errors.New("the path of a file with Services is empty"))
		case p == Stdin && o.Stdin == nil:
			faults = multierror.Append(faults, errors.New("there is no standard input to read Services from"))
		}
	}
	if o.Poll < 0 {
		faults = multierror.Append(faults, fmt.Errorf("the poll interval %v is negative", o.Poll))
	}
	return faults.ErrorOrNil()
}
