package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// deepest is how many brackets may stand in each other. Kubernetes' objects
// need a dozen.
const deepest = 100

// jsonParser turns JSON into the nodes that YAML gives, so that all that
// follows is the same for both.
type jsonParser struct {
	tokens *json.Decoder
	data   []byte
	line   int // of the byte at pos
	pos    int
}

var errDeep = errors.New("brackets are nested too deeply")

// parseJSON parses one JSON text or several in a row.
func parseJSON(data []byte) ([]*yaml.Node, *broken) {
	p := jsonParser{tokens: json.NewDecoder(bytes.NewReader(data)), data: data, line: 1}
	p.tokens.UseNumber()
	var roots []*yaml.Node
	for {
		token, err := p.tokens.Token()
		if errors.Is(err, io.EOF) {
			return roots, nil
		}
		var root *yaml.Node
		if err == nil {
			root, err = p.node(token, deepest)
		}
		if err != nil {
			return nil, p.broken(err)
		}
		roots = append(roots, root)
	}
}

func (p *jsonParser) node(token json.Token, depth int) (*yaml.Node, error) {
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: p.lineAt(int(p.tokens.InputOffset()))}
	switch t := token.(type) {
	case json.Delim:
		if depth == 0 {
			return nil, errDeep
		}
		n.Kind = yaml.MappingNode
		if t == '[' {
			n.Kind = yaml.SequenceNode
		}
		return n, p.content(n, depth-1)
	case string:
		n.Tag, n.Value = "!!str", t
	case json.Number:
		n.Tag, n.Value = "!!int", t.String()
		if strings.ContainsAny(n.Value, ".eE") {
			n.Tag = "!!float"
		}
	case bool:
		n.Tag, n.Value = "!!bool", "false"
		if t {
			n.Value = "true"
		}
	default:
		n.Tag, n.Value = "!!null", "null"
	}
	return n, nil
}

// content reads up to the bracket that closes n: items, or keys and values in
// turn, which is how a mapping's node has them too.
func (p *jsonParser) content(n *yaml.Node, depth int) error {
	for {
		token, err := p.tokens.Token()
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err // broken() explains it with its place
		}
		if token == json.Delim('}') || token == json.Delim(']') {
			return nil
		}
		child, err := p.node(token, depth)
		if err != nil {
			return err
		}
		n.Content = append(n.Content, child)
	}
}

// lineAt counts on from where the last call ended; offsets only grow.
func (p *jsonParser) lineAt(offset int) int {
	if offset > p.pos {
		p.line += bytes.Count(p.data[p.pos:offset], []byte("\n"))
		p.pos = offset
	}
	return p.line
}

// broken tells the line of what follows the last good token.
func (p *jsonParser) broken(err error) *broken {
	at := int(p.tokens.InputOffset())
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return &broken{p.lineAt(len(p.data)), "is not JSON: it ends before its last bracket closes", "write the rest"}
	}
	rest := p.data[at:]
	at += len(rest) - len(bytes.TrimLeft(rest, " \t\r\n,:"))
	advice := "check commas, quotes and brackets here and in the line above"
	if errors.Is(err, errDeep) {
		advice = ""
	}
	return &broken{p.lineAt(at), "is not JSON: " + err.Error(), advice}
}
