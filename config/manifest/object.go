package manifest

import (
	"cmp"
	"net/netip"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Object is one object that was read. One of the three pointers is set.
type Object struct {
	Kind, Namespace, Name string
	Line                  int // where it begins

	Service   *corev1.Service
	Slice     *discoveryv1.EndpointSlice
	Endpoints *corev1.Endpoints //nolint:staticcheck // deprecated upstream, still read for Services without slices
}

// String is the object as people name it.
func (o *Object) String() string { return o.Kind + " " + o.Namespace + "/" + o.Name }

// The kinds that are read, as "kind" has them.
const (
	ServiceKind   = "Service"
	SliceKind     = "EndpointSlice"
	EndpointsKind = "Endpoints"
	listSuffix    = "List"
)

// defaultNamespace is where objects are that do not say.
const defaultNamespace = "default"

// Input is a text with objects, and what must be known to read it.
type Input struct {
	Name      string // of the file, for messages; at the end of .json the text must be JSON
	Data      []byte
	Namespace string     // of objects that do not say; empty is "default"
	Node      netip.Addr // on which Services of the first proxy's form listen; without it that form is a fault
}

// Decode reads all objects of a text. It goes on after a fault, so that all
// are told at once. Beside a fault no object is to be used, unless it is an
// unknown field, without which the object reads the same.
func Decode(in Input) ([]Object, []*Fault) {
	roots, bad := parse(in.Name, in.Data)
	r := reader{
		file:      in.Name,
		namespace: cmp.Or(in.Namespace, defaultNamespace),
		node:      in.Node,
		types:     map[reflect.Type]structType{},
		values:    len(in.Data) + 200_000, // see spend
	}
	for _, b := range bad {
		r.faults = append(r.faults, &Fault{
			File: in.Name, Line: b.line, Reason: ReasonSyntax, Detail: b.detail, Advice: b.advice,
		})
	}
	for _, root := range roots {
		r.document(root)
	}
	r.repeated()
	return r.objects, inOrder(r.faults)
}

// document reads one document: an object, a list of them, the first proxy's
// form, or nothing but comments.
func (r *reader) document(root *yaml.Node) {
	c := r.at(root, "")
	switch {
	case root.Kind == yaml.ScalarNode && root.Tag == "!!null":
	case root.Kind != yaml.MappingNode:
		c.fault(nil, ReasonWrongType, "is "+describe(root)+" where an object belongs",
			"begin it with apiVersion: and kind:")
	case isFirstForm(root):
		c.firstForm()
	case strings.HasSuffix(text(root, "kind"), listSuffix):
		r.list(root)
	default:
		c = r.at(root, r.nameOf(root, ""))
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
		c.fault(top("items"), ReasonMissingValue, "is missing", "write items: [] for none")
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
		ic := r.at(item, r.nameOf(item, of))
		switch kind := ic.kind(of); {
		case strings.HasSuffix(kind, listSuffix):
			ic.fault(top("kind"), ReasonUnknownKind, kind+" stands in another list",
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
		c.fault(top("kind"), ReasonMissingValue, "is missing", "say what this is: "+kindsRead)
		return ""
	case !known:
		advice := "leave it out; read are " + kindsRead
		if near := nearest(kind, []string{ServiceKind, SliceKind, EndpointsKind, listSuffix}); near != "" {
			advice = "did you mean " + near + "?"
		}
		c.fault(top("kind"), ReasonUnknownKind, kind+" is not read here", advice)
		return ""
	case of != "" && kind != of:
		c.fault(top("kind"), ReasonUnknownKind, kind+" stands in a list of "+of, "use kind: List for mixed objects")
		return ""
	case of != "" && version == "":
	case version == "":
		c.fault(top("apiVersion"), ReasonMissingValue, "is missing", "write apiVersion: "+want)
		return ""
	case version != want:
		c.fault(top("apiVersion"), ReasonUnknownKind, "this version of "+kind+", "+version+", is not read",
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
	case ServiceKind, EndpointsKind:
		return "v1", true
	case SliceKind:
		return "discovery.k8s.io/v1", true
	default:
		return "", false
	}
}

// object decodes, completes and checks one object.
func (c *cursor) object(kind string) {
	o := Object{Kind: kind, Line: c.root.Line}
	version, _ := versionOf(kind)
	switch kind {
	case ServiceKind:
		o.Service = &corev1.Service{}
		c.value(c.root, reflect.ValueOf(o.Service).Elem(), nil)
		o.Service.Kind, o.Service.APIVersion = kind, version
		completeMeta(&o.Service.ObjectMeta, c.namespace)
		completeService(o.Service)
		c.checkService(o.Service)
		o.Namespace, o.Name = o.Service.Namespace, o.Service.Name
	case SliceKind:
		o.Slice = &discoveryv1.EndpointSlice{}
		c.value(c.root, reflect.ValueOf(o.Slice).Elem(), nil)
		o.Slice.Kind, o.Slice.APIVersion = kind, version
		completeMeta(&o.Slice.ObjectMeta, c.namespace)
		completeSlice(o.Slice)
		c.checkSlice(o.Slice)
		o.Namespace, o.Name = o.Slice.Namespace, o.Slice.Name
	case EndpointsKind:
		o.Endpoints = &corev1.Endpoints{} //nolint:staticcheck // see Object
		c.value(c.root, reflect.ValueOf(o.Endpoints).Elem(), nil)
		o.Endpoints.Kind, o.Endpoints.APIVersion = kind, version
		completeMeta(&o.Endpoints.ObjectMeta, c.namespace)
		completeEndpoints(o.Endpoints)
		c.checkEndpoints(o.Endpoints)
		o.Namespace, o.Name = o.Endpoints.Namespace, o.Endpoints.Name
	}
	c.objects = append(c.objects, o)
}

// repeated notes objects that stand twice in the file.
func (r *reader) repeated() {
	first := make(map[string]int, len(r.objects))
	for i := range r.objects {
		o := &r.objects[i]
		if o.Name == "" {
			continue
		}
		line, twice := first[o.String()]
		if !twice {
			first[o.String()] = o.Line
			continue
		}
		r.faults = append(r.faults, &Fault{
			File: r.file, Line: o.Line, Object: o.String(), Reason: ReasonDuplicateObject,
			Detail: "stands in this file a second time, the first is in line " + strconv.Itoa(line),
			Advice: "keep one of the two or rename one",
		})
	}
}

// nameOf names an object for messages before it is decoded. Kind of is what a
// list says of its items.
func (r *reader) nameOf(root *yaml.Node, of string) string {
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
		namespace = r.namespace
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
