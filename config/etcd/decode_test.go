package etcd

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	discoveryv1beta1 "k8s.io/api/discovery/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/userspace-proxy/userspace-proxy/config/manifest"
)

// codecs are Kubernetes' own.
func codecs(t testing.TB) serializer.CodecFactory {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme, discoveryv1beta1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	return serializer.NewCodecFactory(scheme)
}

// stored is an object as an API server with this media type stores it.
func stored(t testing.TB, mediaType string, version schema.GroupVersion, o runtime.Object) []byte {
	t.Helper()
	codecs := codecs(t)
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
	require.True(t, ok)
	data, err := runtime.Encode(codecs.EncoderForVersion(info.Serializer, version), o.DeepCopyObject()) // it notes the version in what it writes, for a moment
	require.NoError(t, err)
	return data
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: "5c1d", Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)}},
	}
}

// objects are one of each kind, as somebody may have written them long ago:
// without what later API servers fill in.
func objects() (*corev1.Service, *discoveryv1.EndpointSlice, *v1Endpoints) {
	return &corev1.Service{
			ObjectMeta: meta("web"),
			Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.1", Ports: []corev1.ServicePort{{Port: 80, NodePort: 30080}}, Type: corev1.ServiceTypeNodePort},
		}, &discoveryv1.EndpointSlice{
			ObjectMeta: meta("web-1"), AddressType: discoveryv1.AddressTypeIPv4,
			Ports:     []discoveryv1.EndpointPort{{Port: ptr.To(int32(8080))}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.10.0.1"}, NodeName: ptr.To("n"), Zone: ptr.To("z")}},
		}, &v1Endpoints{
			ObjectMeta: meta("web"),
			Subsets:    []v1EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: "10.10.0.1"}}, Ports: []corev1.EndpointPort{{Port: 8080}}}},
		}
}

type (
	v1Endpoints      = corev1.Endpoints      //nolint:staticcheck // see manifest.Object
	v1EndpointSubset = corev1.EndpointSubset //nolint:staticcheck // see manifest.Object
)

// TestDecode_formsOfStorage reads each kind in each form that an API server
// stores it in, and in the form that people write.
func TestDecode_formsOfStorage(t *testing.T) {
	t.Parallel()
	service, slice, endpoints := objects()
	for form, write := range map[string]func(schema.GroupVersion, runtime.Object) []byte{
		"protobuf": func(v schema.GroupVersion, o runtime.Object) []byte {
			return stored(t, runtime.ContentTypeProtobuf, v, o)
		},
		"json": func(v schema.GroupVersion, o runtime.Object) []byte { return stored(t, runtime.ContentTypeJSON, v, o) },
		"yaml": func(v schema.GroupVersion, o runtime.Object) []byte {
			data, err := yaml.JSONToYAML(stored(t, runtime.ContentTypeJSON, v, o))
			require.NoError(t, err)
			return data
		},
	} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			o := decodeGood(t, place{manifest.ServiceKind, "default", "web"}, write(corev1.SchemeGroupVersion, service))
			assert.Equal(t, []string{"10.96.0.1"}, o.Service.Spec.ClusterIPs, "filled in as the API server does when it reads")
			assert.Equal(t, corev1.ProtocolTCP, o.Service.Spec.Ports[0].Protocol)
			assert.Equal(t, int32(30080), o.Service.Spec.Ports[0].NodePort)
			assert.Nil(t, o.Service.ManagedFields)
			assert.Equal(t, service.UID, o.Service.UID)

			o = decodeGood(t, place{manifest.SliceKind, "default", "web-1"}, write(discoveryv1.SchemeGroupVersion, slice))
			assert.Equal(t, slice.Endpoints, o.Slice.Endpoints)
			assert.Empty(t, *o.Slice.Ports[0].Name)
			assert.Equal(t, slice.Labels, o.Slice.Labels)

			o = decodeGood(t, place{manifest.EndpointsKind, "default", "web"}, write(corev1.SchemeGroupVersion, endpoints))
			assert.Equal(t, "10.10.0.1", o.Endpoints.Subsets[0].Addresses[0].IP)
			assert.Equal(t, corev1.ProtocolTCP, o.Endpoints.Subsets[0].Ports[0].Protocol)
		})
	}
}

// TestDecode_protobufIsReadAsKubernetesDoes compares with the library's own
// reading, the defaults set aside.
func TestDecode_protobufIsReadAsKubernetesDoes(t *testing.T) {
	t.Parallel()
	service, _, _ := objects()
	data := stored(t, runtime.ContentTypeProtobuf, corev1.SchemeGroupVersion, service)
	want, _, err := codecs(t).UniversalDeserializer().Decode(data, nil, nil)
	require.NoError(t, err)
	complete := manifest.Object{Service: want.(*corev1.Service)}
	complete.Complete()
	complete.Service.ManagedFields = nil
	got := decodeGood(t, place{manifest.ServiceKind, "default", "web"}, data).Service
	assert.Equal(t, complete.Service, got)
}

// TestDecode_sliceOfV1beta1 is one that was stored before Kubernetes 1.21 and
// never written since.
func TestDecode_sliceOfV1beta1(t *testing.T) {
	t.Parallel()
	old := &discoveryv1beta1.EndpointSlice{
		ObjectMeta: meta("web-1"), AddressType: discoveryv1beta1.AddressTypeIPv4,
		Ports: []discoveryv1beta1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To(int32(8080))}},
		Endpoints: []discoveryv1beta1.Endpoint{{
			Addresses: []string{"10.10.0.1"}, Conditions: discoveryv1beta1.EndpointConditions{Ready: ptr.To(false)},
			NodeName: ptr.To("n"), Topology: map[string]string{corev1.LabelTopologyZone: "z"},
		}},
	}
	o := decodeGood(t, place{manifest.SliceKind, "default", "web-1"}, stored(t, runtime.ContentTypeProtobuf, discoveryv1beta1.SchemeGroupVersion, old))
	assert.Equal(t, "http", *o.Slice.Ports[0].Name)
	assert.Equal(t, []string{"10.10.0.1"}, o.Slice.Endpoints[0].Addresses)
	assert.False(t, *o.Slice.Endpoints[0].Conditions.Ready)
	assert.Equal(t, "n", *o.Slice.Endpoints[0].NodeName)
	assert.Equal(t, "z", *o.Slice.Endpoints[0].Zone)
}

func decodeGood(t testing.TB, in place, value []byte) *manifest.Object {
	t.Helper()
	o, problems := newDecoder().decode(in, "/key", value)
	require.Empty(t, problems)
	require.NotNil(t, o)
	require.Equal(t, place{o.Kind, o.Namespace, o.Name}, in)
	return o
}

func TestDecode_namespaceOfTheKey(t *testing.T) {
	t.Parallel()
	value := strings.Replace(aService("web", "10.96.0.1"), `,"namespace":"default"`, "", 1)
	o := decodeGood(t, place{manifest.ServiceKind, "prod", "web"}, []byte(value))
	assert.Equal(t, "prod", o.Service.Namespace)
}

// TestDecode_unknownField is told, and the object is used: a newer API server
// may have stored it.
func TestDecode_unknownField(t *testing.T) {
	t.Parallel()
	value := strings.Replace(aService("web", "10.96.0.1"), `"ports":`, `"portz":[],"ports":`, 1)
	o, problems := newDecoder().decode(place{manifest.ServiceKind, "default", "web"}, "/key", []byte(value))
	require.NotNil(t, o)
	require.Len(t, problems, 1)
	assert.Equal(t, "etcd key /key: Service default/web spec.portz: line 1: is not a known field (did you mean ports?)", problems[0].String())
	assert.Equal(t, manifest.ReasonUnknownField, problems[0].Reason)
}

// TestDecode_bad: everything that can be wrong with a value, and the message.
func TestDecode_bad(t *testing.T) {
	t.Parallel()
	service, slice, _ := objects()
	protobuf := stored(t, runtime.ContentTypeProtobuf, corev1.SchemeGroupVersion, service)
	for name, c := range map[string]struct{ value, want string }{
		"empty": {"", "ValueUnreadable: etcd key /key: Service default/web: the value is empty (to have no object, delete the key)"},
		"encrypted": {
			"k8s:enc:aescbc:v1:key1:\x8e\x00\x17", "ValueEncrypted: etcd key /key: Service default/web: the API server has encrypted the value" +
				" (read from the API server (--kubeconfig), or leave services out of its --encryption-provider-config and write them anew)",
		},
		"protobuf cut short": {string(protobuf[:40]), "ValueUnreadable: etcd key /key: Service default/web: the value cannot be read: protobuf: unexpected EOF (write the object anew)"},
		"protobuf of nothing": {
			"k8s\x00", "ValueUnreadable: etcd key /key: Service default/web: the value cannot be read: protobuf: empty body (write the object anew)",
		},
		"another kind in protobuf": {
			string(stored(t, runtime.ContentTypeProtobuf, corev1.SchemeGroupVersion, &corev1.Pod{ObjectMeta: meta("web")})),
			`ValueUnreadable: etcd key /key: Service default/web: the value cannot be read: it is a "Pod" of "v1" (write the object anew)`,
		},
		"a slice in protobuf": {
			string(stored(t, runtime.ContentTypeProtobuf, discoveryv1.SchemeGroupVersion, slice)),
			"WrongObject: etcd key /key: Service default/web: the value is EndpointSlice default/web-1 (write it to the key that has its namespace and name)",
		},
		"another name": {
			aService("db", "10.96.0.1"), "WrongObject: etcd key /key: Service default/web: the value is Service default/db (write it to the key that has its namespace and name)",
		},
		"another namespace": {
			strings.Replace(aService("web", "10.96.0.1"), `"namespace":"default"`, `"namespace":"prod"`, 1),
			"WrongObject: etcd key /key: Service default/web: the value is Service prod/web (write it to the key that has its namespace and name)",
		},
		"another kind": {
			someEndpoints("web", "10.10.0.1"), "WrongObject: etcd key /key: Service default/web: the value is Endpoints default/web (write it to the key that has its namespace and name)",
		},
		"binary":    {"\x89PNG\x00", "ValueUnreadable: etcd key /key: Service default/web: the value is neither text nor Kubernetes' protobuf (write the object as JSON or YAML)"},
		"UTF-16":    {"\xff\xfea\x00", "ValueUnreadable: etcd key /key: is written in UTF-16 (save it as UTF-8)"},
		"no object": {"# nothing", "WrongObject: etcd key /key: Service default/web: the value holds 0 objects (write one object to each key)"},
		"two objects": {
			aService("web", "10.96.0.1") + aService("db", "10.96.0.2"), "WrongObject: etcd key /key: Service default/web: the value holds 2 objects (write one object to each key)",
		},
		"JSON cut short": {`{"kind": `, "ValueUnreadable: etcd key /key: line 1: is not JSON: it ends before its last bracket closes (write the rest)"},
		"a bad address":  {aService("web", "10.96.0.256"), `InvalidValue: etcd key /key: Service default/web spec.clusterIP: line 1: "10.96.0.256" is no IP address (write it like 10.96.0.10 or fd00::10; names are not looked up)`},
	} {
		o, problems := newDecoder().decode(place{manifest.ServiceKind, "default", "web"}, "/key", []byte(c.value))
		assert.Nil(t, o, name)
		if assert.Len(t, problems, 1, name) {
			assert.Equal(t, c.want, problems[0].Reason+": "+problems[0].String(), name)
		}
	}
}

// FuzzDecodeValue feeds the decoder anything: it never panics, a value that is
// not used has a problem that says why, and one that is used is what its key
// says and is read again as the same from the form that Kubernetes stores.
func FuzzDecodeValue(f *testing.F) {
	service, slice, endpoints := objects()
	for _, mediaType := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON} {
		f.Add(byte(0), stored(f, mediaType, corev1.SchemeGroupVersion, service))
		f.Add(byte(1), stored(f, mediaType, discoveryv1.SchemeGroupVersion, slice))
		f.Add(byte(2), stored(f, mediaType, corev1.SchemeGroupVersion, endpoints))
	}
	names, err := filepath.Glob("../manifest/testdata/*/*.yaml")
	require.NoError(f, err)
	for _, name := range names {
		data, err := os.ReadFile(name)
		require.NoError(f, err)
		f.Add(byte(0), data)
	}
	places := []place{{manifest.ServiceKind, "default", "web"}, {manifest.SliceKind, "default", "web-1"}, {manifest.EndpointsKind, "default", "web"}}
	decoder := newDecoder()
	f.Fuzz(func(t *testing.T, kind byte, value []byte) {
		in := places[int(kind)%len(places)]
		o, problems := decoder.decode(in, "/key", value)
		for _, p := range problems {
			require.Equal(t, "etcd key /key", p.Object)
			require.NotEmpty(t, p.Reason)
			require.NotEmpty(t, p.Detail)
		}
		if o == nil {
			require.NotEmpty(t, problems)
			return
		}
		require.Equal(t, place{o.Kind, o.Namespace, o.Name}, in)
		version := corev1.SchemeGroupVersion
		if o.Slice != nil {
			version = discoveryv1.SchemeGroupVersion
		}
		again, problems := decoder.decode(in, "/key", stored(t, runtime.ContentTypeProtobuf, version, asRuntime(o)))
		require.Empty(t, problems)
		require.JSONEq(t, asJSON(t, o), asJSON(t, again))
	})
}

// asRuntime is an object in its own type.
func asRuntime(o *manifest.Object) runtime.Object {
	switch {
	case o.Service != nil:
		return o.Service
	case o.Slice != nil:
		return o.Slice
	default:
		return o.Endpoints
	}
}

// asJSON is an object without what JSON says of its type.
func asJSON(t testing.TB, o *manifest.Object) string {
	t.Helper()
	copied := asRuntime(o).DeepCopyObject()
	copied.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	data, err := json.Marshal(copied)
	require.NoError(t, err)
	return string(data)
}
