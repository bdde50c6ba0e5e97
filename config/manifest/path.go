package manifest

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// path is the way from an object's root to one of its fields. The root is nil.
// Paths are built for every field that is read and used only where one is
// wrong, so they are links on the stack and become text late.
type path struct {
	up    *path
	key   string // the member of a mapping, or
	index int    // the item of a list where it is not negative
}

// top is a field of the object itself.
func top(key string) *path { return (*path)(nil).child(key) }

func (p *path) child(key string) *path { return &path{up: p, key: key, index: -1} }
func (p *path) item(i int) *path       { return &path{up: p, index: i} }

// String is the path as Kubernetes writes it: spec.ports[0].port,
// metadata.labels["kubernetes.io/service-name"].
func (p *path) String() string {
	switch {
	case p == nil:
		return ""
	case p.index >= 0:
		return p.up.String() + "[" + strconv.Itoa(p.index) + "]"
	case strings.ContainsAny(p.key, `./"[] `) || p.key == "":
		return p.up.String() + "[" + strconv.Quote(p.key) + "]"
	case p.up == nil:
		return strings.Clone(p.key) // p itself must not live on, or none could be on the stack
	default:
		return p.up.String() + "." + p.key
	}
}

// find is the node at the path below root, or the last one on the way to it,
// so that a missing field is told at the line of what it is missing from.
func (p *path) find(root *yaml.Node) (n *yaml.Node, whole bool) {
	if p == nil {
		return follow(root), true
	}
	up, ok := p.up.find(root)
	if !ok {
		return up, false
	}
	if p.index >= 0 {
		if up.Kind == yaml.SequenceNode && p.index < len(up.Content) {
			return follow(up.Content[p.index]), true
		}
		return up, false
	}
	if v := member(up, p.key); v != nil {
		return follow(v), true
	}
	return up, false
}

// follow is the node that an alias stands for.
func follow(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// member is the value of a key in a mapping, nil where there is none.
func member(n *yaml.Node, key string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key && n.Content[i].Kind == yaml.ScalarNode {
			return n.Content[i+1]
		}
	}
	return nil
}
