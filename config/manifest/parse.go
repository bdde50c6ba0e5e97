package manifest

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A broken line is where text is not YAML or JSON, and why.
type broken struct {
	line           int
	detail, advice string
}

// parse turns a file's content into the root nodes of its documents, with the
// lines where they stand in the file. One document that is broken hides no
// other one.
//
// JSON is read as JSON, not as the YAML that it nearly is: YAML lacks
// surrogate pairs (😀 as \ud83d\ude00) and several texts in a row.
func parse(name string, data []byte) ([]*yaml.Node, []broken) {
	if bytes.HasPrefix(data, []byte{0xff, 0xfe}) || bytes.HasPrefix(data, []byte{0xfe, 0xff}) {
		return nil, []broken{{detail: "is written in UTF-16", advice: "save it as UTF-8"}}
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	text := bytes.TrimSpace(data)
	if len(text) == 0 {
		return nil, []broken{{
			detail: "is empty, as a file is that is being written",
			advice: "to have no objects in it, say so by a comment or by kind: List with items: []",
		}}
	}
	isJSON := strings.EqualFold(filepath.Ext(name), ".json")
	var notJSON *broken
	if isJSON || text[0] == '{' || text[0] == '[' {
		var roots []*yaml.Node
		if roots, notJSON = parseJSON(data); notJSON == nil || isJSON {
			return roots, some(notJSON)
		}
	}
	roots, bad := parseYAML(data)
	if len(bad) > 0 && notJSON != nil && looksLikeJSON(text) {
		return nil, some(notJSON)
	}
	return roots, bad
}

func some(b *broken) []broken {
	if b == nil {
		return nil
	}
	return []broken{*b}
}

// looksLikeJSON says whether people meant JSON when it is neither that nor
// YAML's own way with brackets: a quote follows the first one.
func looksLikeJSON(text []byte) bool {
	rest := bytes.TrimLeft(text, "[{ \t\r\n")
	return len(rest) > 0 && rest[0] == '"'
}

// parseYAML parses all documents, and where one is broken, each by itself. A
// line of --- ends a document wherever it stands (YAML 1.2, 9.1.2), so the text
// can be cut there before it is parsed.
func parseYAML(data []byte) (roots []*yaml.Node, bad []broken) {
	if roots, err := decodeYAML(data); err == nil {
		return roots, nil
	}
	for _, part := range documents(data) {
		found, err := decodeYAML(part.text)
		for _, root := range found {
			moveDown(root, part.above)
		}
		roots = append(roots, found...)
		if err != nil {
			b := explain(part.text, err)
			b.line += part.above
			bad = append(bad, b)
		}
	}
	return roots, bad
}

// decodeYAML is the documents up to the end or the first that is broken.
func decodeYAML(data []byte) (roots []*yaml.Node, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc yaml.Node
		switch err := decoder.Decode(&doc); {
		case errors.Is(err, io.EOF):
			return roots, nil
		case err != nil:
			return roots, err // explain puts it into words
		}
		roots = append(roots, doc.Content...)
	}
}

// part is the text of one document and the number of lines above it.
type part struct {
	text  []byte
	above int
}

// documents cuts text before lines of --- and after lines of "...". What holds
// directives and comments only stays with the document that follows.
func documents(data []byte) []part {
	var parts []part
	start, above, line, content := 0, 0, 0, false
	for pos := 0; pos < len(data); line++ {
		end := pos + bytes.IndexByte(data[pos:], '\n') + 1
		if end == pos {
			end = len(data)
		}
		text := data[pos:end]
		if marker(text, "---") && content {
			parts = append(parts, part{data[start:pos], above})
			start, above, content = pos, line, false
		}
		switch trimmed := bytes.TrimSpace(text); {
		case marker(text, "..."):
			parts = append(parts, part{data[start:end], above})
			start, above, content = end, line+1, false
		case marker(text, "---"), len(trimmed) > 0 && trimmed[0] != '#' && text[0] != '%':
			content = true
		}
		pos = end
	}
	return append(parts, part{data[start:], above})
}

func marker(line []byte, mark string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(mark))
	return ok && (len(rest) == 0 || strings.ContainsRune(" \t\r\n", rune(rest[0])))
}

// moveDown adds to the lines of a tree. Aliases lead to nodes of the same tree.
func moveDown(n *yaml.Node, lines int) {
	if lines == 0 {
		return
	}
	n.Line += lines
	for _, c := range n.Content {
		moveDown(c, lines)
	}
}

// explain says where and why a document is not YAML. The library's line is
// that of the block around the fault for some messages, and missing in others.
func explain(text []byte, err error) broken {
	line, problem := problemOf(err)
	switch {
	case strings.HasPrefix(problem, "did not find expected ','"):
		line++ // a parser error counts from 0; it tells where the bracket opens, or if that is at the top, where the text ends
	case line == 0 || strings.HasPrefix(problem, "did not find expected"):
		line = firstLineWith(text, problem)
	}
	rows := bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
	line = min(line, len(rows))
	for _, at := range []int{line, line + 1, line - 1} {
		if strings.Contains(problem, "character") && at >= 1 && at <= len(rows) && tabIndents(rows[at-1]) {
			return broken{at, "a tab indents this line", "YAML is indented with spaces: put spaces in the tab's place"}
		}
	}
	return broken{line, "is not YAML: " + problem, adviceFor(problem)}
}

// problemOf takes "yaml: line 3: problem" apart; line is 0 where none is said.
func problemOf(err error) (line int, problem string) {
	problem = strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(problem, "line "); ok {
		if number, text, ok := strings.Cut(rest, ": "); ok {
			if n, err := strconv.Atoi(number); err == nil {
				return n, text
			}
		}
	}
	return 0, problem
}

// firstLineWith is the first line with which the text above it and itself show
// the problem. It costs a parse for each halving, so long texts go without.
func firstLineWith(text []byte, problem string) int {
	const long = 1 << 20
	rows := bytes.SplitAfter(text, []byte("\n"))
	if len(text) > long {
		return 1
	}
	low, high := 1, len(rows)
	for low < high {
		middle := (low + high) / 2
		var n yaml.Node
		err := yaml.Unmarshal(bytes.Join(rows[:middle], nil), &n)
		if err != nil && strings.HasSuffix(err.Error(), problem) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low
}

func tabIndents(row []byte) bool {
	indent := row[:len(row)-len(bytes.TrimLeft(row, " \t"))]
	return bytes.ContainsRune(indent, '\t')
}

func adviceFor(problem string) string {
	switch {
	case strings.HasPrefix(problem, "mapping values"):
		return `indent this line like its neighbours, and put text that holds ": " in quotes`
	case strings.HasPrefix(problem, "did not find expected ','"):
		return "close the bracket that opens here or above"
	case strings.HasPrefix(problem, "did not find expected"):
		return "indent this line like its neighbours"
	case strings.HasPrefix(problem, "could not find expected ':'"):
		return "write this line as key: value, or indent it"
	case strings.HasPrefix(problem, "found unexpected end"):
		return "close the quote that opens here or above"
	case strings.HasPrefix(problem, "found character"):
		return "put text that begins with this character in quotes"
	case strings.HasPrefix(problem, "unknown anchor"):
		return "an alias needs its anchor, &name, above it in the same document"
	case strings.Contains(problem, "UTF-8"):
		return "save it as UTF-8"
	}
	return ""
}
