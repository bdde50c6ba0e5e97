package config

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Objects in these tests are written "namespace/name@version"; the version
// tells one object from another of the same name.

func metaOf(ref string) metav1.ObjectMeta {
	name, version, _ := strings.Cut(ref, "@")
	namespace, name, _ := strings.Cut(name, "/")
	return metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: version}
}

func servicesNamed(refs ...string) []*corev1.Service {
	var list []*corev1.Service
	for _, ref := range refs {
		list = append(list, &corev1.Service{ObjectMeta: metaOf(ref)})
	}
	return list
}

func v1EndpointsNamed(refs ...string) []*v1Endpoints {
	var list []*v1Endpoints
	for _, ref := range refs {
		list = append(list, &v1Endpoints{ObjectMeta: metaOf(ref)})
	}
	return list
}

// slicesNamed makes slices "namespace/name@version of service"; the label is
// left out where no service is given.
func slicesNamed(refs ...string) []*discoveryv1.EndpointSlice {
	var list []*discoveryv1.EndpointSlice
	for _, ref := range refs {
		ref, owner, labelled := strings.Cut(ref, " of ")
		slice := &discoveryv1.EndpointSlice{ObjectMeta: metaOf(ref)}
		if labelled {
			slice.Labels = map[string]string{discoveryv1.LabelServiceName: owner}
		}
		list = append(list, slice)
	}
	return list
}

// dumpSnapshot writes a snapshot as text, so that a test lists all of it and a
// failure shows a difference of lines.
func dumpSnapshot(s Snapshot) string {
	var b strings.Builder
	for _, svc := range s.Services {
		fmt.Fprintf(&b, "Service %s from %s\n", dumpMeta(svc.ObjectMeta), svc.Source)
	}
	for _, e := range s.Endpoints {
		fmt.Fprintf(&b, "Endpoints %s/%s from %s:", e.Namespace, e.Name, e.Source)
		for _, slice := range e.Slices {
			fmt.Fprintf(&b, " %s", dumpMeta(slice.ObjectMeta))
		}
		if e.Endpoints != nil {
			fmt.Fprintf(&b, " v1.Endpoints %s", dumpMeta(e.Endpoints.ObjectMeta))
		}
		b.WriteByte('\n')
	}
	for _, p := range s.Problems {
		fmt.Fprintf(&b, "Problem %s: %s\n", p.Object, p.Reason)
	}
	if s.Complete {
		b.WriteString("complete\n")
	}
	return b.String()
}

func dumpMeta(m metav1.ObjectMeta) string {
	s := m.Namespace + "/" + m.Name
	if m.ResourceVersion != "" {
		s += "@" + m.ResourceVersion
	}
	return s
}

// lines joins what a dump is expected to be.
func lines(l ...string) string {
	if len(l) == 0 {
		return ""
	}
	return strings.Join(l, "\n") + "\n"
}
