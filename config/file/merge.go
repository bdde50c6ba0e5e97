package file

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/userspace-proxy/userspace-proxy/config/manifest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// state is all that the files say together.
type state struct {
	services  []*corev1.Service
	slices    []*discoveryv1.EndpointSlice
	endpoints []*corev1.Endpoints //nolint:staticcheck // see manifest.Object
}

// merge puts the files' objects together. The same object in two files is
// taken from the first; the other one is a fault.
func merge(origins []*origin) (state, []*manifest.Fault) {
	type place struct {
		file string
		line int
	}
	var (
		s      state
		faults []*manifest.Fault
		places = map[string]place{}
	)
	for _, origin := range origins {
		for i := range origin.objects {
			o := &origin.objects[i]
			if first, twice := places[o.String()]; twice {
				faults = append(faults, &manifest.Fault{
					File: origin.name, Line: o.Line, Object: o.String(), Reason: manifest.ReasonDuplicateObject,
					Detail: fmt.Sprintf("is in %s:%d too, which comes first and is used", first.file, first.line),
					Advice: "remove one of the two",
				})
				continue
			}
			places[o.String()] = place{origin.name, o.Line}
			switch {
			case o.Service != nil:
				s.services = append(s.services, o.Service)
			case o.Slice != nil:
				s.slices = append(s.slices, o.Slice)
			case o.Endpoints != nil:
				s.endpoints = append(s.endpoints, o.Endpoints)
			}
		}
	}
	return s, faults
}

// problems is what people should know: paths and files that cannot be read,
// files whose newest content is bad, and objects that stand in two files.
func problems(paths []*manifest.Fault, origins []*origin, twice []*manifest.Fault) []service.Problem {
	var all []service.Problem
	for _, f := range paths {
		all = append(all, kept(f, "what was read from it"))
	}
	for _, o := range origins {
		for _, f := range o.allFaults() {
			if len(o.objects) > 0 {
				all = append(all, kept(f, "the file's last good content"))
			} else {
				all = append(all, problem(f))
			}
		}
	}
	for _, f := range twice {
		all = append(all, problem(f))
	}
	return all
}

// allFaults is why the file's newest content is not in use.
func (o *origin) allFaults() []*manifest.Fault {
	if o.trouble != nil {
		return []*manifest.Fault{o.trouble}
	}
	return o.faults
}

// problem is a fault as a running proxy reports it.
func problem(f *manifest.Fault) service.Problem { return f.Problem("file " + f.File) }

// kept is a fault with the assurance that what was good goes on.
func kept(f *manifest.Fault, what string) service.Problem {
	p := problem(f)
	if p.Advice != "" {
		p.Advice += "; "
	}
	p.Advice += "until then " + what + " stays in use"
	return p
}
