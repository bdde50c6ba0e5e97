package etcd

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/userspace-proxy/userspace-proxy/config/manifest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// The reasons of problems with keys and values, beside those of package manifest.
const (
	ReasonInvalidKey      = "InvalidKey"      // a key that names no namespace and name
	ReasonValueUnreadable = "ValueUnreadable" // neither JSON, YAML nor Kubernetes' protobuf
	ReasonValueEncrypted  = "ValueEncrypted"  // the API server encrypts what it stores
	ReasonWrongObject     = "WrongObject"     // the value is another object than the key says
)

// decoder reads values.
type decoder struct {
	protobuf runtime.Decoder
}

func newDecoder() decoder {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Service{}, &corev1.Endpoints{}) //nolint:staticcheck // see manifest.Object
	scheme.AddKnownTypes(discoveryv1.SchemeGroupVersion, &discoveryv1.EndpointSlice{})
	// The bytes of v1beta1 are those of v1, which still has the field that the zone was in.
	scheme.AddKnownTypes(schema.GroupVersion{Group: discoveryv1.GroupName, Version: "v1beta1"}, &discoveryv1.EndpointSlice{})
	return decoder{protobuf.NewSerializer(scheme, scheme)}
}

// decode reads the value of a key. The object is nil where it cannot be used.
// An unknown field is a problem that does not stand in its way: what a newer
// API server stores is not unfit for that.
func (d decoder) decode(in place, key string, value []byte) (*manifest.Object, []service.Problem) {
	problem := service.Problem{Object: "etcd key " + printable(key), Field: in.String()}
	encrypted := bytes.HasPrefix(value, []byte("k8s:enc:"))
	var object *manifest.Object
	var problems []service.Problem
	switch {
	case len(value) == 0:
		problem.Reason, problem.Detail = ReasonValueUnreadable, "the value is empty"
		problem.Advice = "to have no object, delete the key"
	case encrypted:
		problem.Reason, problem.Detail = ReasonValueEncrypted, "the API server has encrypted the value"
		problem.Advice = "read from the API server (--kubeconfig), or leave " + resource(in.kind) + " out of its --encryption-provider-config and write them anew"
	case bytes.HasPrefix(value, []byte("k8s\x00")):
		var err error
		if object, err = d.decodeProtobuf(value); err != nil {
			problem.Reason, problem.Detail = ReasonValueUnreadable, "the value cannot be read: "+err.Error()
			problem.Advice = "write the object anew"
		}
	case !utf8.Valid(value) && !bytes.HasPrefix(value, []byte{0xff, 0xfe}) && !bytes.HasPrefix(value, []byte{0xfe, 0xff}): // UTF-16 is told by manifest
		problem.Reason, problem.Detail = ReasonValueUnreadable, "the value is neither text nor Kubernetes' protobuf"
		problem.Advice = "write the object as JSON or YAML"
	default:
		object, problems = decodeText(in, problem.Object, value)
		if object == nil {
			return nil, problems
		}
	}
	if problem.Reason != "" {
		return nil, []service.Problem{problem}
	}
	if got := (place{object.Kind, object.Namespace, object.Name}); got != in {
		problem.Reason, problem.Detail = ReasonWrongObject, "the value is "+got.String()
		problem.Advice = "write it to the key that has its namespace and name"
		return nil, []service.Problem{problem}
	}
	return object, problems
}

// resource is what an API server's configuration calls objects of a kind.
func resource(kind string) string {
	switch kind {
	case manifest.ServiceKind:
		return "services"
	case manifest.SliceKind:
		return "endpointslices.discovery.k8s.io"
	default:
		return "endpoints"
	}
}

// decodeText reads an object in JSON or YAML. The problems say why there is
// none, or what of it is not read.
func decodeText(in place, name string, value []byte) (*manifest.Object, []service.Problem) {
	objects, faults := manifest.Decode(manifest.Input{Data: value, Namespace: in.namespace})
	fit := true
	problems := make([]service.Problem, len(faults))
	for i, f := range faults {
		problems[i] = f.Problem(name)
		if f.Reason != manifest.ReasonUnknownField {
			fit = false
		}
		if f.Reason == manifest.ReasonSyntax {
			problems[i].Reason = ReasonValueUnreadable
		}
	}
	if fit && len(objects) != 1 {
		fit = false
		problems = append(problems, service.Problem{
			Object: name, Field: in.String(), Reason: ReasonWrongObject,
			Detail: fmt.Sprintf("the value holds %d objects", len(objects)), Advice: "write one object to each key",
		})
	}
	if !fit {
		return nil, problems
	}
	return &objects[0], problems
}

// decodeProtobuf reads an object in the form in which Kubernetes stores it.
func (d decoder) decodeProtobuf(value []byte) (*manifest.Object, error) {
	decoded, kind, err := d.protobuf.Decode(value, nil, nil)
	switch {
	case runtime.IsNotRegisteredError(err):
		return nil, fmt.Errorf("it is a %q of %q", kind.Kind, kind.GroupVersion())
	case err != nil:
		return nil, fmt.Errorf("protobuf: %w", err)
	}
	o := new(manifest.Object)
	switch decoded := decoded.(type) {
	case *corev1.Service:
		o.Kind, o.Service = manifest.ServiceKind, decoded
		o.Namespace, o.Name = decoded.Namespace, decoded.Name
		decoded.ManagedFields = nil // nobody here reads them, and they are large
	case *discoveryv1.EndpointSlice:
		o.Kind, o.Slice = manifest.SliceKind, decoded
		o.Namespace, o.Name = decoded.Namespace, decoded.Name
		decoded.ManagedFields = nil
		decoded.APIVersion = discoveryv1.SchemeGroupVersion.String()
		for i := range decoded.Endpoints {
			zoneOfV1beta1(&decoded.Endpoints[i])
		}
	case *corev1.Endpoints: //nolint:staticcheck // see manifest.Object
		o.Kind, o.Endpoints = manifest.EndpointsKind, decoded
		o.Namespace, o.Name = decoded.Namespace, decoded.Name
		decoded.ManagedFields = nil
	}
	o.Complete() // the API server fills in on reading, too, what it knew no default for when it wrote
	return o, nil
}

// zoneOfV1beta1 takes an endpoint's zone from where v1beta1 had it.
func zoneOfV1beta1(e *discoveryv1.Endpoint) {
	if zone, ok := e.DeprecatedTopology[corev1.LabelTopologyZone]; ok && e.Zone == nil {
		e.Zone = &zone
	}
}
