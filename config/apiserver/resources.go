package apiserver

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// labelProxyName, whatever its value, gives a Service to another proxy.
const labelProxyName = "service.kubernetes.io/service-proxy-name"

// v1Endpoints is what EndpointSlices have replaced.
type v1Endpoints = corev1.Endpoints //nolint:staticcheck // still followed on servers without EndpointSlices

// resource is a kind of objects on the server, as far as it concerns us: the
// selectors are applied by the server, so that an object that leaves the
// selection arrives as deleted, and one that never was in it not at all.
type resource struct {
	name   string         // as the API's paths have it
	kind   runtime.Object // an example
	labels string         // selectors; empty is everything
	fields string
	list   func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch  func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// servicesOf is the Services that no other proxy has. Headless ones among them
// are told by their address, for which not every server has a selector.
func servicesOf(client kubernetes.Interface) resource {
	all := client.CoreV1().Services(metav1.NamespaceAll)
	return resource{
		name: "services", kind: &corev1.Service{}, labels: "!" + labelProxyName,
		list:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return all.List(ctx, o) },
		watch: all.Watch,
	}
}

// slicesOf is the EndpointSlices, but for those of headless Services. A slice
// that bears the name of another proxy counts all the same: its Service decides.
func slicesOf(client kubernetes.Interface) resource {
	all := client.DiscoveryV1().EndpointSlices(metav1.NamespaceAll)
	return resource{
		name: "endpointslices", kind: &discoveryv1.EndpointSlice{}, labels: "!" + corev1.IsHeadlessService,
		list:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return all.List(ctx, o) },
		watch: all.Watch,
	}
}

// endpointsOf is what came before EndpointSlices. Endpoints bear the labels of
// their Service.
func endpointsOf(client kubernetes.Interface) resource {
	all := client.CoreV1().Endpoints(metav1.NamespaceAll)
	return resource{
		name: "endpoints", kind: &v1Endpoints{}, labels: "!" + corev1.IsHeadlessService,
		list:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return all.List(ctx, o) },
		watch: all.Watch,
	}
}

// nodeOf is the one Node of a name.
func nodeOf(client kubernetes.Interface, name string) resource {
	all := client.CoreV1().Nodes()
	return resource{
		name: "nodes", kind: &corev1.Node{}, fields: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(),
		list:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return all.List(ctx, o) },
		watch: all.Watch,
	}
}

// selected is the options with the selectors.
func (r resource) selected(o metav1.ListOptions) metav1.ListOptions {
	o.LabelSelector, o.FieldSelector = r.labels, r.fields
	return o
}
