package file

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"github.com/userspace-proxy/userspace-proxy/config"
	"github.com/userspace-proxy/userspace-proxy/config/manifest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// stdinName is standard input in messages.
const stdinName = "standard input"

// Source feeds the Services in files to a ServiceConfig. It is a config.Source.
// It is not for use by several goroutines at once, and its Run is for once.
type Source struct {
	name    string
	options Options

	origins []*origin
	paths   []*manifest.Fault // of paths that cannot be listed
	twice   []*manifest.Fault // of objects that stand in two files
	state   state
	checked time.Time // when everything could last be read
}

var _ config.Source = (*Source)(nil)

// New reads all files, and standard input to its end where it is named. A path
// that is missing and content that is bad are an error, which tells all that
// is wrong, a line each, with file, line, object and field.
func New(name string, o Options) (*Source, error) {
	o.Defaults()
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("source %s: %w", name, err)
	}
	o.Paths = once(o.Paths)
	s := &Source{name: name, options: o}
	if slices.Contains(o.Paths, Stdin) {
		s.origins = append(s.origins, readStdin(o))
	}
	s.look(time.Now(), true)
	faults := slices.Clone(s.paths)
	for _, origin := range s.origins {
		faults = append(faults, origin.allFaults()...)
	}
	if err := manifest.ErrorOf(faults); err != nil {
		return nil, err
	}
	return s, nil
}

// once is the paths, each once. Stdin stays as it is.
func once(paths []string) []string {
	var all []string
	for _, p := range paths {
		if p = filepath.Clean(p); !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return all
}

// Load reads everything once. The problems are objects that stand in two files.
func Load(o Options) (config.ServiceUpdate, config.EndpointsUpdate, []service.Problem, error) {
	s, err := New("file", o)
	if err != nil {
		return config.ServiceUpdate{}, config.EndpointsUpdate{}, nil, err
	}
	return s.serviceUpdate(), s.endpointsUpdate(), problems(s.paths, s.origins, s.twice), nil
}

// Name is how people know the source.
func (s *Source) Name() string { return s.name }

// Run sends what was read, then what changes, as whole states, until ctx ends.
// After each look at the files it sends its status.
func (s *Source) Run(ctx context.Context, to config.Updates) error {
	w := newWatch(s.options.Log, s.options.Poll)
	defer w.close()
	for first := true; ; first = false {
		before := s.state
		settled := s.look(time.Now(), false)
		if w.follow(s.options.Paths, s.origins) {
			settled = false // a change between the look and the new watch would be missed
		}
		services := first || !reflect.DeepEqual(before.services, s.state.services)
		endpoints := first || !reflect.DeepEqual(before.slices, s.state.slices) ||
			!reflect.DeepEqual(before.endpoints, s.state.endpoints)
		if !s.send(ctx, to, services, endpoints) || !w.wait(ctx, settled) {
			return nil
		}
	}
}

// look brings what is known up to date. It says settled=false where a file was
// left for later since it seems to be in the middle of a change.
func (s *Source) look(now time.Time, atOnce bool) (settled bool) {
	s.origins, s.paths = list(s.options.Paths, s.origins)
	settled = true
	for _, o := range s.origins {
		if o.under != Stdin && !o.away && !o.refresh(now, s.options.NodeAddr, atOnce) {
			settled = false
		}
	}
	s.state, s.twice = merge(s.origins)
	return settled
}

// send sends what has changed and then the status. It gives up when ctx ends.
func (s *Source) send(ctx context.Context, to config.Updates, services, endpoints bool) bool {
	var e []config.EndpointsUpdate
	if endpoints {
		e = append(e, s.endpointsUpdate())
	}
	var v []config.ServiceUpdate
	if services {
		v = append(v, s.serviceUpdate())
	}
	return to.Send(ctx, e, v) && to.Tell(ctx, s.status())
}

func (s *Source) serviceUpdate() config.ServiceUpdate {
	return config.ServiceUpdate{Op: config.SET, Services: s.state.services}
}

func (s *Source) endpointsUpdate() config.EndpointsUpdate {
	return config.EndpointsUpdate{Op: config.SET, Slices: s.state.slices, Endpoints: s.state.endpoints}
}

// status tells of problems, and of an error while a path or file cannot be
// read: then the source has not seen its origin whole.
func (s *Source) status() config.SourceStatus {
	failing := slices.Clone(s.paths)
	for _, o := range s.origins {
		if o.trouble != nil && !o.away {
			failing = append(failing, o.trouble)
		}
	}
	status := config.SourceStatus{Problems: problems(s.paths, s.origins, s.twice), Err: manifest.ErrorOf(failing)}
	if status.Err == nil {
		s.checked = time.Now()
	}
	status.Checked = s.checked
	return status
}

// readStdin reads standard input to its end.
func readStdin(o Options) *origin {
	in := &origin{name: stdinName, under: Stdin, real: Stdin}
	data, err := io.ReadAll(io.LimitReader(o.Stdin, largest+1))
	switch {
	case err != nil:
		in.trouble = in.troubleOf(err)
	case len(data) > largest:
		in.trouble = in.tooLarge()
	default:
		in.take(data, o.NodeAddr)
	}
	return in
}
