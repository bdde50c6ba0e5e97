package file

import (
	"net/netip"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// object is one object of a file. One of the three pointers is set.
type object struct {
	kind, namespace, name string
	line                  int

	service   *corev1.Service
	slice     *discoveryv1.EndpointSlice
	endpoints *corev1.Endpoints //nolint:staticcheck // deprecated upstream, still read for Services without slices
}

// String is the object as people name it.
func (o *object) String() string { return o.kind + " " + o.namespace + "/" + o.name }

// The kinds that are read, as "kind" has them.
const (
	serviceKind   = "Service"
	sliceKind     = "EndpointSlice"
	endpointsKind = "Endpoints"
	listSuffix    = "List"
)

// defaultNamespace is where objects are that do not say.
const defaultNamespace = "default"

// decode reads all objects of a file's content. It goes on after a fault, so
// that all are told at once; objects beside faults are not to be used. Objects
// of the first proxy's form listen on the address node.
func decode(name string, data []byte, node netip.Addr) ([]object, []*fault) {
	roots, bad := parse(name, data)
	r := reader{
		file:   name,
		types:  map[reflect.Type]structType{},
		values: len(data) + 200_000, // see spend
	}
	for _, b := range bad {
		r.faults = append(r.faults, &fault{
			file: name, line: b.line, reason: badSyntax, detail: b.detail, advice: b.advice,
		})
	}
	for _, root := range roots {
		r.document(root, node)
	}
	r.repeated()
	return r.objects, inOrder(r.faults)
}

// document reads one document: an object, a list of them, the first proxy's
// form, or nothing but comments.
func (r *reader) document(root *yaml.Node, node netip.Addr) {
	c := r.at(root, "")
	switch {
	case root.Kind == yaml.ScalarNode && root.Tag == "!!null":
	case root.Kind != yaml.MappingNode:
		c.fault(nil, wrongType, "is "+describe(root)+" where an object belongs",
			"begin it with apiVersion: and kind:")
	case isFirstForm(root):
		c.firstForm(node)
	case strings.HasSuffix(text(root, "kind"), listSuffix):
		r.list(root)
	default:
		c = r.at(root, nameOf(root, ""))
		if kind := c.kind(""); kind != "" {
			c.object(kind)
		}
	}
}

// at is a cursor for an object.
func (r *reader) at(root *yaml.Node, name string) *cursor {
	return &cursor{reader: r, name: name, root: root, since: len(r.faults)}
}

// list reads the items of a List, ServiceList, EndpointSliceList or
// EndpointsList. Items of the last three may leave out what the list says.
func (r *reader) list(root *yaml.Node) {
	c := r.at(root, "")
	kind := c.kind("")
	if kind == "" {
		return
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		switch key := root.Content[i]; key.Value {
		case "apiVersion", "kind", "metadata", "items":
		default:
			c.unknown(key, nil, structType{names: []string{"items"}})
		}
	}
	items := member(root, "items")
	if items == nil {
		c.fault(top("items"), missingValue, "is missing", "write items: [] for none")
		return
	}
	items = follow(items)
	if items.Tag == "!!null" {
		return
	}
	if items.Kind != yaml.SequenceNode {
		c.wrong(items, top("items"), "a list (- item)")
		return
	}
	of := strings.TrimSuffix(kind, listSuffix)
	for i, item := range items.Content {
		item = follow(item)
		if item.Kind != yaml.MappingNode {
			c.wrong(item, top("items").item(i), "an object")
			continue
		}
		ic := r.at(item, nameOf(item, of))
		switch kind := ic.kind(of); {
		case strings.HasSuffix(kind, listSuffix):
			ic.fault(top("kind"), unknownKind, kind+" stands in another list",
				"put its items into the outer list")
		case kind != "":
			ic.object(kind)
		}
	}
}

// kind is the object's kind, and empty, with a fault, where it is none that is
// read. Where a list says what it holds, of, its items need not.
func (c *cursor) kind(of string) string {
	kind, version := text(c.root, "kind"), text(c.root, "apiVersion")
	if of != "" && kind == "" {
		kind = of
	}
	want, known := versionOf(kind)
	switch {
	case kind == "":
		c.fault(top("kind"), missingValue, "is missing", "say what this is: "+kindsRead)
		return ""
	case !known:
		advice := "leave it out; read are " + kindsRead
		if near := nearest(kind, []string{serviceKind, sliceKind, endpointsKind, listSuffix}); near != "" {
			advice = "did you mean " + near + "?"
		}
		c.fault(top("kind"), unknownKind, kind+" is not read here", advice)
		return ""
	case of != "" && kind != of:
		c.fault(top("kind"), unknownKind, kind+" stands in a list of "+of, "use kind: List for mixed objects")
		return ""
	case of != "" && version == "":
	case version == "":
		c.fault(top("apiVersion"), missingValue, "is missing", "write apiVersion: "+want)
		return ""
	case version != want:
		c.fault(top("apiVersion"), unknownKind, "this version of "+kind+", "+version+", is not read",
			"write apiVersion: "+want)
		return ""
	}
	return kind
}

const kindsRead = "Service, EndpointSlice, Endpoints, and List, ServiceList, EndpointSliceList, EndpointsList of them"

// versionOf is the apiVersion of the kinds that are read.
func versionOf(kind string) (version string, known bool) {
	switch strings.TrimSuffix(kind, listSuffix) {
	case "":
		return "v1", kind == listSuffix
	case serviceKind, endpointsKind:
		return "v1", true
	case sliceKind:
		return "discovery.k8s.io/v1", true
	default:
		return "", false
	}
}

// object decodes, completes and checks one object.
func (c *cursor) object(kind string) {
	o := object{kind: kind, line: c.root.Line}
	version, _ := versionOf(kind)
	switch kind {
	case serviceKind:
		o.service = &corev1.Service{}
		c.value(c.root, reflect.ValueOf(o.service).Elem(), nil)
		o.service.Kind, o.service.APIVersion = kind, version
		completeMeta(&o.service.ObjectMeta)
		completeService(o.service)
		c.checkService(o.service)
		o.namespace, o.name = o.service.Namespace, o.service.Name
	case sliceKind:
		o.slice = &discoveryv1.EndpointSlice{}
		c.value(c.root, reflect.ValueOf(o.slice).Elem(), nil)
		o.slice.Kind, o.slice.APIVersion = kind, version
		completeMeta(&o.slice.ObjectMeta)
		completeSlice(o.slice)
		c.checkSlice(o.slice)
		o.namespace, o.name = o.slice.Namespace, o.slice.Name
	case endpointsKind:
		o.endpoints = &corev1.Endpoints{} //nolint:staticcheck // see object
		c.value(c.root, reflect.ValueOf(o.endpoints).Elem(), nil)
		o.endpoints.Kind, o.endpoints.APIVersion = kind, version
		completeMeta(&o.endpoints.ObjectMeta)
		completeEndpoints(o.endpoints)
		c.checkEndpoints(o.endpoints)
		o.namespace, o.name = o.endpoints.Namespace, o.endpoints.Name
	}
	c.objects = append(c.objects, o)
}

// repeated notes objects that stand twice in the file.
func (r *reader) repeated() {
	first := make(map[string]int, len(r.objects))
	for i := range r.objects {
		o := &r.objects[i]
		if o.name == "" {
			continue
		}
		line, twice := first[o.String()]
		if !twice {
			first[o.String()] = o.line
			continue
		}
		r.faults = append(r.faults, &fault{
			file: r.file, line: o.line, object: o.String(), reason: duplicateObject,
			detail: "stands in this file a second time, the first is in line " + strconv.Itoa(line),
			advice: "keep one of the two or rename one",
		})
	}
}

// nameOf names an object for messages before it is decoded. Kind of is what a
// list says of its items.
func nameOf(root *yaml.Node, of string) string {
	kind := text(root, "kind")
	if kind == "" {
		kind = of
	}
	if kind == "" {
		kind = "object"
	}
	meta := member(root, "metadata")
	if meta == nil {
		return kind + " without a name"
	}
	meta = follow(meta)
	name, namespace := text(meta, "name"), text(meta, "namespace")
	if name == "" {
		return kind + " without a name"
	}
	if namespace == "" {
		namespace = defaultNamespace
	}
	return kind + " " + namespace + "/" + name
}

// text is the text of a mapping's member, empty where it has none.
func text(n *yaml.Node, key string) string {
	v := member(n, key)
	if v == nil {
		return ""
	}
	if v = follow(v); !isText(v) {
		return ""
	}
	return v.Value
}
