package etcd

import (
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/userspace-proxy/userspace-proxy/config/manifest"
)

// directory is where the objects of one kind are, below the prefix.
type directory struct {
	kind string // as manifest has it
	path string // ends in a slash
}

// directories are all that are read. What else is in etcd is never asked for.
func (o *Options) directories() []directory {
	return []directory{
		{manifest.ServiceKind, strings.TrimSuffix(o.Prefix, "/") + "/services/specs/"},
		{manifest.SliceKind, strings.TrimSuffix(o.Prefix, "/") + "/endpointslices/"},
		{manifest.EndpointsKind, strings.TrimSuffix(o.Prefix, "/") + "/services/endpoints/"},
	}
}

// end is the key behind all of the directory.
func (d directory) end() string { return clientv3.GetPrefixRangeEnd(d.path) }

// place is what a key says of the object in it.
type place struct {
	kind, namespace, name string
}

// placeOf reads a key; false: there can be no object in it.
func (d directory) placeOf(key string) (place, bool) {
	namespace, name, ok := strings.Cut(strings.TrimPrefix(key, d.path), "/")
	ok = ok && len(validation.IsDNS1123Label(namespace)) == 0 && len(validation.IsDNS1123Subdomain(name)) == 0
	return place{d.kind, namespace, name}, ok
}

// String is the object as people name it.
func (p place) String() string { return p.kind + " " + p.namespace + "/" + p.name }

func (p place) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: p.namespace, Name: p.name}
}

// object is the object with nothing but its name, to say that it is gone.
func (p place) object() *manifest.Object {
	o := &manifest.Object{Kind: p.kind, Namespace: p.namespace, Name: p.name}
	switch p.kind {
	case manifest.ServiceKind:
		o.Service = &corev1.Service{ObjectMeta: p.meta()}
	case manifest.SliceKind:
		o.Slice = &discoveryv1.EndpointSlice{ObjectMeta: p.meta()}
	case manifest.EndpointsKind:
		o.Endpoints = &corev1.Endpoints{ObjectMeta: p.meta()} //nolint:staticcheck // see manifest.Object
	}
	return o
}

// printable is a key for messages.
func printable(key string) string {
	if quoted := strconv.Quote(key); quoted != `"`+key+`"` {
		return quoted
	}
	return key
}
