package apiserver

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// annotationPrefix begins the keys of the annotations that are read, but for
// corev1.EndpointsLastChangeTriggerTime, by which changes are timed.
const annotationPrefix = "userspace-proxy/"

// strip takes from an object what nobody here reads, before it is kept: in a
// large cluster that is most of it. It is a cache.TransformFunc and may change
// the object, which nobody else has yet.
func strip(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.Service:
		stripMeta(&o.ObjectMeta)
		o.Spec.Selector = nil
		o.Status.Conditions = nil
	case *discoveryv1.EndpointSlice:
		stripMeta(&o.ObjectMeta)
		for i := range o.Endpoints {
			e := &o.Endpoints[i]
			e.Hostname, e.DeprecatedTopology = nil, nil
			e.TargetRef = stripRef(e.TargetRef)
		}
	case *v1Endpoints:
		stripMeta(&o.ObjectMeta)
		for i := range o.Subsets {
			for _, list := range [][]corev1.EndpointAddress{o.Subsets[i].Addresses, o.Subsets[i].NotReadyAddresses} {
				for j := range list {
					list[j].Hostname = ""
					list[j].TargetRef = stripRef(list[j].TargetRef)
				}
			}
		}
	case *corev1.Node:
		stripMeta(&o.ObjectMeta)
		o.Spec = corev1.NodeSpec{PodCIDR: o.Spec.PodCIDR, PodCIDRs: o.Spec.PodCIDRs, Taints: o.Spec.Taints}
		o.Status = corev1.NodeStatus{Addresses: o.Status.Addresses}
	}
	return object, nil
}

// stripMeta leaves who an object is, how old, and the labels and annotations
// that have a meaning for a proxy.
func stripMeta(m *metav1.ObjectMeta) {
	*m = metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
		Labels: only(m.Labels, func(key string) bool {
			switch key {
			case discoveryv1.LabelServiceName, corev1.IsHeadlessService, labelProxyName,
				corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion:
				return true
			}
			return false
		}),
		Annotations: only(m.Annotations, func(key string) bool {
			return key == corev1.EndpointsLastChangeTriggerTime || strings.HasPrefix(key, annotationPrefix)
		}),
	}
}

// only is a map without the keys that are not wanted; nil where none is.
func only(all map[string]string, wanted func(key string) bool) map[string]string {
	var some map[string]string
	for k, v := range all {
		if wanted(k) {
			if some == nil {
				some = map[string]string{}
			}
			some[k] = v
		}
	}
	return some
}

func stripRef(ref *corev1.ObjectReference) *corev1.ObjectReference {
	if ref == nil {
		return nil
	}
	return &corev1.ObjectReference{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
}
