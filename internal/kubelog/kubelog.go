package kubelog

import (
	"bytes"
	"flag"
	"fmt"
	"strconv"

	"github.com/go-logr/logr"
	"github.com/sirupsen/logrus"
	"k8s.io/klog/v2"
)

// Lead leads klog into log, with severities kept: info, warning and error are
// that, and what klog has at a verbosity of 1 or more is debug. verbosity is
// klog's own, up to which messages are made at all.
//
// klog has two kinds of messages, and none of its own ways out keeps both. A
// logr.Logger is told the verbosity of structured ones, and nothing of the
// severity of the others: their warnings would be info. Its outputs by severity
// are not told any verbosity. So structured messages go by a logger here, and
// the others by the bytes that klog would write, whose first is the severity.
func Lead(log logrus.FieldLogger, verbosity int) error {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	if err := flags.Set("v", strconv.Itoa(verbosity)); err != nil {
		return fmt.Errorf("setting klog's verbosity: %w", err)
	}
	klog.SetLoggerWithOptions(logr.New(sink{log: log}), klog.WriteKlogBuffer(writer{log, verbosity > 0}.write))
	return nil
}

// sink takes structured messages. It is a logr.LogSink.
type sink struct {
	log  logrus.FieldLogger
	name string
}

var _ logr.LogSink = sink{}

// Init takes nothing of what it could be told.
func (s sink) Init(logr.RuntimeInfo) {}

// Enabled is asked by those that have the logger itself; klog has asked its
// own verbosity before.
func (s sink) Enabled(int) bool { return true }

// Info logs what is no error.
func (s sink) Info(level int, msg string, pairs ...any) {
	log := s.log.WithFields(fieldsOf(pairs))
	if level > 0 {
		log.Debug(msg)
	} else {
		log.Info(msg)
	}
}

// Error logs an error; err may be nil.
func (s sink) Error(err error, msg string, pairs ...any) {
	log := s.log.WithFields(fieldsOf(pairs))
	if err != nil {
		log = log.WithError(err)
	}
	log.Error(msg)
}

// WithValues is a sink that adds pairs to every message.
func (s sink) WithValues(pairs ...any) logr.LogSink {
	s.log = s.log.WithFields(fieldsOf(pairs))
	return s
}

// WithName is a sink whose messages say which part they are from.
func (s sink) WithName(name string) logr.LogSink {
	if s.name != "" {
		name = s.name + "." + name
	}
	s.name = name
	s.log = s.log.WithField("logger", name)
	return s
}

// fieldsOf is pairs of keys and values as logrus has them. Values that know
// how to be written, as errors do and klog's references to objects, are text.
func fieldsOf(pairs []any) logrus.Fields {
	fields := logrus.Fields{}
	for i := 0; i < len(pairs); i += 2 {
		var value any = "(missing)"
		if i+1 < len(pairs) {
			value = pairs[i+1]
		}
		if s, ok := value.(fmt.Stringer); ok {
			value = s.String()
		}
		fields[fmt.Sprint(pairs[i])] = value
	}
	return fields
}

// writer takes the other messages, as lines in klog's format:
// "W1130 17:10:05.123456   12345 reflector.go:569] text".
type writer struct {
	log     logrus.FieldLogger
	verbose bool // an info message may be one of any verbosity
}

func (w writer) write(line []byte) {
	if len(line) == 0 {
		return
	}
	text := line
	if _, after, ok := bytes.Cut(line, []byte("] ")); ok {
		text = after
	}
	msg := string(bytes.TrimRight(text, "\n"))
	switch line[0] {
	case 'E', 'F': // after F klog ends the process
		w.log.Error(msg)
	case 'W':
		w.log.Warn(msg)
	default:
		if w.verbose {
			w.log.Debug(msg)
		} else {
			w.log.Info(msg)
		}
	}
}
