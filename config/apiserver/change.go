package apiserver

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/userspace-proxy/userspace-proxy/config"
)

// allServices is all Services, as an update.
func (s *Source) allServices() []config.ServiceUpdate {
	return []config.ServiceUpdate{{Op: config.SET, Services: objectsOf[*corev1.Service](s.services)}}
}

// allEndpoints is all EndpointSlices, or where the server has none all
// v1.Endpoints, as an update.
func (s *Source) allEndpoints() []config.EndpointsUpdate {
	all := config.EndpointsUpdate{Op: config.SET}
	if s.endpoints == nil {
		all.Slices = objectsOf[*discoveryv1.EndpointSlice](s.slices)
	} else {
		all.Endpoints = objectsOf[*v1Endpoints](s.endpoints)
	}
	return []config.EndpointsUpdate{all}
}

// changedServices is what has become of Services, by their keys.
func (s *Source) changedServices(keys map[string]struct{}) []config.ServiceUpdate {
	come, gone := objectsBy(s.services, keys, func(m metav1.ObjectMeta) *corev1.Service {
		return &corev1.Service{ObjectMeta: m}
	})
	return []config.ServiceUpdate{{Op: config.ADD, Services: come}, {Op: config.REMOVE, Services: gone}}
}

// changedSlices is what has become of EndpointSlices.
func (s *Source) changedSlices(keys map[string]struct{}) []config.EndpointsUpdate {
	come, gone := objectsBy(s.slices, keys, func(m metav1.ObjectMeta) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{ObjectMeta: m}
	})
	return []config.EndpointsUpdate{{Op: config.ADD, Slices: come}, {Op: config.REMOVE, Slices: gone}}
}

// changedEndpoints is what has become of v1.Endpoints.
func (s *Source) changedEndpoints(keys map[string]struct{}) []config.EndpointsUpdate {
	come, gone := objectsBy(s.endpoints, keys, func(m metav1.ObjectMeta) *v1Endpoints {
		return &v1Endpoints{ObjectMeta: m}
	})
	return []config.EndpointsUpdate{{Op: config.ADD, Endpoints: come}, {Op: config.REMOVE, Endpoints: gone}}
}
