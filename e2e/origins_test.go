package e2e

import (
	"bytes"
	"context"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
)

// origin is a place that a proxy gets its Services from, and that a test writes
// them to. Where a test writes to it again, what it has of the objects' names is
// replaced: their Services, and all of their slices.
type origin interface {
	put(t *testing.T, objects ...object)
	remove(t *testing.T, names ...string)
}

// decoded is an object's Service and slices.
func (o object) decoded(t *testing.T) (*corev1.Service, []*discovery.EndpointSlice) {
	t.Helper()
	var svc *corev1.Service
	var slices []*discovery.EndpointSlice
	for doc := range strings.SplitSeq(manifest(o), "---\n") {
		decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(doc), nil, nil)
		require.NoError(t, err, "%s", doc)
		switch decoded := decoded.(type) {
		case *corev1.Service:
			svc = decoded
		case *discovery.EndpointSlice:
			slices = append(slices, decoded)
		}
	}
	return svc, slices
}

// files is a file that a proxy reads.
type files struct {
	proxy   *proxy // whose file it is
	objects map[string]object
}

func (f *files) put(t *testing.T, objects ...object) {
	t.Helper()
	for _, o := range objects {
		f.objects[o.name] = o
	}
	f.write(t)
}

func (f *files) remove(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		delete(f.objects, name)
	}
	f.write(t)
}

func (f *files) write(t *testing.T) {
	t.Helper()
	var all []object
	for _, name := range slices.Sorted(maps.Keys(f.objects)) {
		all = append(all, f.objects[name])
	}
	f.proxy.write(t, "# Services\n---\n"+manifest(all...))
}

// put creates or updates the objects by the API.
func (c *controlPlane) put(t *testing.T, objects ...object) {
	t.Helper()
	for _, o := range objects {
		svc, slices := o.decoded(t)
		putService(t, c.admin, svc)
		c.putSlices(t, o.name, slices...)
	}
}

func putService(t *testing.T, admin kubernetes.Interface, svc *corev1.Service) {
	t.Helper()
	_, err := admin.CoreV1().Services(svc.Namespace).Update(t.Context(), svc, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = admin.CoreV1().Services(svc.Namespace).Create(t.Context(), svc, metav1.CreateOptions{})
	}
	require.NoError(t, err)
}

// putSlices makes these the slices of a Service.
func (c *controlPlane) putSlices(t *testing.T, name string, all ...*discovery.EndpointSlice) {
	t.Helper()
	client := c.admin.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault)
	old, err := client.List(t.Context(), metav1.ListOptions{LabelSelector: discovery.LabelServiceName + "=" + name})
	require.NoError(t, err)
	for _, slice := range all {
		_, err := client.Update(t.Context(), slice, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			_, err = client.Create(t.Context(), slice, metav1.CreateOptions{})
		}
		require.NoError(t, err)
	}
	for _, slice := range old.Items {
		if !slices.ContainsFunc(all, func(s *discovery.EndpointSlice) bool { return s.Name == slice.Name }) {
			require.NoError(t, client.Delete(t.Context(), slice.Name, metav1.DeleteOptions{}))
		}
	}
}

func (c *controlPlane) remove(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		require.NoError(t, c.admin.CoreV1().Services(metav1.NamespaceDefault).Delete(t.Context(), name, metav1.DeleteOptions{}))
		c.putSlices(t, name)
	}
}

// keys are the keys of an etcd below a prefix. Their values are written as
// Kubernetes does, in protobuf, unless another encoding is given.
type keys struct {
	etcd   *etcdServer
	prefix string // "/registry"
	encode func(*testing.T, runtime.Object) []byte
}

func (k keys) put(t *testing.T, objects ...object) {
	t.Helper()
	for _, o := range objects {
		svc, slices := o.decoded(t)
		ops := k.ops(t, o.name, slices...)
		ops = append(ops, clientv3.OpPut(k.service(o.name), string(k.encode(t, svc))))
		k.do(t, ops...)
	}
}

func (k keys) remove(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		k.do(t, append(k.ops(t, name), clientv3.OpDelete(k.service(name)))...)
	}
}

func (k keys) service(name string) string { return k.prefix + "/services/specs/default/" + name }

func (k keys) slice(name string) string { return k.prefix + "/endpointslices/default/" + name }

// ops make these the slices of a Service.
func (k keys) ops(t *testing.T, name string, all ...*discovery.EndpointSlice) []clientv3.Op {
	t.Helper()
	old, err := k.etcd.client.Get(t.Context(), k.slice(name+"-"), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(t, err)
	ops := make(map[string]clientv3.Op)
	for _, kv := range old.Kvs {
		ops[path.Base(string(kv.Key))] = clientv3.OpDelete(string(kv.Key))
	}
	for _, slice := range all {
		ops[slice.Name] = clientv3.OpPut(k.slice(slice.Name), string(k.encode(t, slice)))
	}
	return slices.Collect(maps.Values(ops))
}

// do does all of it in one transaction.
func (k keys) do(t *testing.T, ops ...clientv3.Op) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := k.etcd.client.Txn(ctx).Then(ops...).Commit()
	require.NoError(t, err)
}

// asProtobuf is Kubernetes' own form of what it stores.
func asProtobuf(t *testing.T, o runtime.Object) []byte {
	t.Helper()
	return encoded(t, protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), o)
}

func asJSON(t *testing.T, o runtime.Object) []byte {
	t.Helper()
	return encoded(t, json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{}), o)
}

func asYAML(t *testing.T, o runtime.Object) []byte {
	t.Helper()
	return encoded(t, json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{Yaml: true}), o)
}

func encoded(t *testing.T, e runtime.Encoder, o runtime.Object) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, e.Encode(o, &b))
	return b.Bytes()
}
