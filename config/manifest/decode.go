package manifest

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// reader reads the objects of one file. It walks the nodes itself instead of
// handing JSON to a strict decoder, since those stop at the first wrong type
// and know neither lines nor the index of an item.
type reader struct {
	file      string
	namespace string // of objects that do not say
	node      netip.Addr
	objects   []Object
	faults    []*Fault
	types     map[reflect.Type]structType // what was learnt about types by reflection
	values    int                         // how many values may still be read
	spent     bool                        // none may, or there are enough faults, and that is said
}

// cursor reads one object: its faults carry the object's name.
type cursor struct {
	*reader
	name  string     // "Service default/web"
	root  *yaml.Node // the object's mapping
	since int        // the number of faults before this object
}

// structType is what the JSON tags of a struct say.
type structType struct {
	fields map[string]structField
	names  []string // as they stand in the struct
}

type structField struct {
	index []int // for reflect.Value.FieldByIndex
	order int   // among the type's fields
}

// fault notes what is wrong at a field. A field that is known to be wrong, or
// lies in one, is not told again: what follows from a fault is no news.
func (c *cursor) fault(at *path, reason, detail, advice string) {
	n, _ := at.find(c.root)
	c.faultAt(n.Line, at, reason, detail, advice)
}

func (c *cursor) faultAt(line int, at *path, reason, detail, advice string) {
	if c.spent {
		return
	}
	field := at.String()
	for _, f := range c.faults[c.since:] {
		if f.Field != "" && strings.HasPrefix(field, f.Field) {
			if rest := field[len(f.Field):]; rest == "" || rest[0] == '.' || rest[0] == '[' {
				return
			}
		}
	}
	c.faults = append(c.faults, &Fault{c.file, line, c.name, field, reason, detail, advice})
	if len(c.faults) >= enoughFaults {
		c.spent = true
		c.faults = append(c.faults, &Fault{
			File: c.file, Line: line, Object: c.name, Reason: ReasonSyntax, // the object was not read whole
			Detail: "here reading has stopped, after " + strconv.Itoa(enoughFaults) + " faults",
		})
	}
}

// wrong notes a value of the wrong type.
func (c *cursor) wrong(n *yaml.Node, at *path, want string) {
	advice := ""
	switch {
	case want == "text" && n.Kind == yaml.ScalarNode:
		advice = "put it in quotes: " + strconv.Quote(n.Value)
	case want == "a whole number" && isText(n):
		if _, err := strconv.Atoi(n.Value); err == nil {
			advice = "take it out of its quotes"
		}
	}
	c.faultAt(n.Line, at, ReasonWrongType, "is "+describe(n)+" where "+want+" belongs", advice)
}

// value reads a node into v. A null leaves v as it is, as in JSON.
func (c *cursor) value(n *yaml.Node, v reflect.Value, at *path) {
	n = follow(n)
	if !c.spend(n, at) || n.Tag == "!!null" {
		return
	}
	switch v.Kind() { // Kubernetes' types have no others; default tells
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		c.value(n, v.Elem(), at)
	case reflect.Struct:
		c.structure(n, v, at)
	case reflect.Slice:
		c.list(n, v, at)
	case reflect.Map:
		c.textMap(n, v, at)
	case reflect.String:
		if !isText(n) {
			c.wrong(n, at, "text")
			return
		}
		v.SetString(n.Value)
	case reflect.Bool:
		b, err := strconv.ParseBool(strings.ToLower(n.Value))
		if n.Tag != "!!bool" || err != nil {
			c.wrong(n, at, "true or false")
			return
		}
		v.SetBool(b)
	case reflect.Int32, reflect.Int64:
		c.integer(n, v, at)
	default:
		c.faultAt(n.Line, at, ReasonUnknownField, "cannot be read by this version", "leave it out")
	}
}

// spend counts a value. Only aliases can make a file hold more values than
// bytes, and few lines of them make billions.
func (c *cursor) spend(n *yaml.Node, at *path) bool {
	c.values--
	if c.values < 0 {
		c.faultAt(n.Line, at, ReasonSyntax, "aliases (*name) repeat too much of the file", "write the values out")
		c.spent = true
	}
	return !c.spent
}

func (c *cursor) structure(n *yaml.Node, v reflect.Value, at *path) {
	switch to := v.Addr().Interface().(type) {
	case *metav1.Time:
		if !isText(n) || to.UnmarshalJSON([]byte(strconv.Quote(n.Value))) != nil {
			c.wrong(n, at, "a time like 2026-01-31T12:00:00Z")
		}
	case *intstr.IntOrString:
		switch {
		case isText(n):
			*to = intstr.FromString(n.Value)
		case n.Tag == "!!int":
			to.Type = intstr.Int
			c.integer(n, reflect.ValueOf(&to.IntVal).Elem(), at)
		default:
			c.wrong(n, at, "a number or a name")
		}
	case json.Unmarshaler:
		c.faultAt(n.Line, at, ReasonUnknownField, "cannot be read by this version", "leave it out")
	default:
		if n.Kind != yaml.MappingNode {
			c.wrong(n, at, "a mapping (key: value)")
			return
		}
		t := c.typeOf(v.Type())
		c.members(n, v, at, t, make([]bool, len(t.names)), false)
	}
}

// members reads the fields of a mapping, then those that it merges (<<) and
// does not have itself.
func (c *cursor) members(n *yaml.Node, v reflect.Value, at *path, t structType, seen []bool, merged bool) {
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if !c.spend(key, at) {
			return
		}
		if key.Tag == "!!merge" {
			merges = append(merges, value)
			continue
		}
		key = follow(key)
		field, known := t.fields[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode || !known:
			c.unknown(key, at, t)
		case !seen[field.order]:
			seen[field.order] = true
			c.value(value, v.FieldByIndex(field.index), at.child(key.Value))
		case !merged:
			c.twice(n, key, at)
		}
	}
	for _, m := range merges {
		m = follow(m)
		sources := []*yaml.Node{m}
		if m.Kind == yaml.SequenceNode {
			sources = m.Content
		}
		for _, from := range sources {
			from = follow(from)
			// One level: a merge in what is merged could lead round in a circle.
			if from.Kind != yaml.MappingNode || merged {
				c.faultAt(from.Line, at.child("<<"), ReasonWrongType, "does not lead to a mapping without << of its own",
					"write the values out")
				continue
			}
			c.members(from, v, at, t, seen, true)
		}
	}
}

func (c *cursor) unknown(key *yaml.Node, at *path, t structType) {
	if key.Kind != yaml.ScalarNode {
		c.wrong(key, at, "a key")
		return
	}
	advice := "leave it out"
	if near := nearest(key.Value, t.names); near != "" {
		advice = "did you mean " + near + "?"
	}
	c.faultAt(key.Line, at.child(key.Value), ReasonUnknownField, "is not a known field", advice)
}

func (c *cursor) twice(n, key *yaml.Node, at *path) {
	first := key.Line
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == key.Value {
			first = n.Content[i].Line
			break
		}
	}
	c.faultAt(key.Line, at.child(key.Value), ReasonDuplicateKey,
		"stands here a second time, the first is in line "+strconv.Itoa(first), "keep one of the two")
}

func (c *cursor) list(n *yaml.Node, v reflect.Value, at *path) {
	if v.Type() == reflect.TypeFor[[]metav1.ManagedFieldsEntry]() {
		return // bookkeeping of the API server, in exported objects; nobody here reads it
	}
	if n.Kind != yaml.SequenceNode {
		c.wrong(n, at, "a list (- item)")
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		c.value(item, v.Index(i), at.item(i))
	}
}

// textMap reads a map of texts: labels, annotations, selectors.
func (c *cursor) textMap(n *yaml.Node, v reflect.Value, at *path) {
	if n.Kind != yaml.MappingNode {
		c.wrong(n, at, "a mapping (key: value)")
		return
	}
	v.Set(reflect.MakeMapWithSize(v.Type(), len(n.Content)/2))
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := follow(n.Content[i])
		if key.Kind != yaml.ScalarNode || key.Tag == "!!merge" {
			c.wrong(key, at, "a key")
			continue
		}
		k := reflect.ValueOf(key.Value)
		if v.MapIndex(k).IsValid() {
			c.twice(n, key, at)
			if c.spent {
				return
			}
			continue
		}
		text := reflect.New(v.Type().Elem()).Elem()
		c.value(n.Content[i+1], text, at.child(key.Value))
		v.SetMapIndex(k, text)
	}
}

func (c *cursor) integer(n *yaml.Node, v reflect.Value, at *path) {
	if n.Tag != "!!int" {
		c.wrong(n, at, "a whole number")
		return
	}
	var i int64
	if err := n.Decode(&i); err != nil || v.OverflowInt(i) {
		c.faultAt(n.Line, at, ReasonWrongType, n.Value+" is too large", "")
		return
	}
	v.SetInt(i)
}

// typeOf reads the JSON tags of a struct; embedded structs without a name give
// it their fields.
func (r *reader) typeOf(t reflect.Type) structType {
	if known, ok := r.types[t]; ok {
		return known
	}
	s := structType{fields: map[string]structField{}}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" || !direct(t, f.Index) {
			continue
		}
		s.fields[name] = structField{f.Index, len(s.names)}
		s.names = append(s.names, name)
	}
	r.types[t] = s
	return s
}

// direct says whether a field belongs to t itself or comes by embedded structs
// that have no JSON name of their own.
func direct(t reflect.Type, index []int) bool {
	for i := 1; i < len(index); i++ {
		name, _, _ := strings.Cut(t.FieldByIndex(index[:i]).Tag.Get("json"), ",")
		if name != "" {
			return false
		}
	}
	return true
}

// isText says whether a scalar is text. An unquoted date is, as for kubectl.
func isText(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && (n.Tag == "!!str" || n.Tag == "!!timestamp")
}

// describe is a node for messages.
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!int" || n.Tag == "!!float":
		return "the number " + n.Value
	case n.Tag == "!!bool":
		return n.Value
	case n.Tag == "!!null":
		return "empty"
	default:
		return "the text " + strconv.Quote(n.Value)
	}
}
