package view

import (
	"slices"
	"strings"

	"github.com/userspace-proxy/userspace-proxy/internal/status"
	"github.com/userspace-proxy/userspace-proxy/proxy"
)

// Filter says what is to be seen. The zero Filter is everything.
type Filter struct{ Namespace, Service string } // empty: all

// ParseFilter reads NAME or NAMESPACE/NAME, beside a namespace that was given
// apart. It is false where both name one and they differ.
func ParseFilter(name, namespace string) (Filter, bool) {
	before, after, found := strings.Cut(name, "/")
	if !found {
		return Filter{Namespace: namespace, Service: name}, true
	}
	return Filter{Namespace: before, Service: after}, namespace == "" || namespace == before
}

// IsAll says whether nothing is filtered out.
func (f Filter) IsAll() bool { return f == Filter{} }

// String is the filter as kubectl's users write it.
func (f Filter) String() string {
	if f.Namespace == "" {
		return f.Service
	}
	return f.Namespace + "/" + f.Service
}

func (f Filter) matches(namespace, name string) bool {
	return (f.Namespace == "" || f.Namespace == namespace) && (f.Service == "" || f.Service == name)
}

// hasPort takes the name of a service port: "default/web:http/TCP".
func (f Filter) hasPort(port string) bool {
	namespace, rest, _ := strings.Cut(port, "/")
	name, _, _ := strings.Cut(rest, "/")
	name, _, _ = strings.Cut(name, ":")
	return f.matches(namespace, name)
}

// hasProblem takes "Service default/web" and "EndpointSlice default/web-x2x4z":
// a slice is as a rule named after its Service.
func (f Filter) hasProblem(object string) bool {
	if f.IsAll() {
		return true
	}
	_, object, _ = strings.Cut(object, " ")
	namespace, name, found := strings.Cut(object, "/")
	return found && (f.matches(namespace, name) ||
		f.matches(namespace, f.Service) && strings.HasPrefix(name, f.Service+"-"))
}

// Of is the report without what the filter leaves out. Its lists are its own.
func (f Filter) Of(r status.Report) status.Report {
	if f.IsAll() {
		return r
	}
	r.Ports = keep(r.Ports, func(p proxy.PortStatus) bool { return f.hasPort(p.Name) })
	r.Connections = keep(r.Connections, func(c proxy.ConnectionStatus) bool { return f.hasPort(c.Service) })
	r.Flows = keep(r.Flows, func(c proxy.FlowStatus) bool { return f.hasPort(c.Service) })
	r.Problems = keep(r.Problems, func(p status.Problem) bool { return f.hasProblem(p.Object) })
	return r
}

func keep[T any](all []T, which func(T) bool) []T {
	return slices.DeleteFunc(append([]T{}, all...), func(v T) bool { return !which(v) })
}
