package report

import (
	"errors"
	"strings"
)

// The lines between which a document has what was measured.
const (
	Begin = "<!-- begin: measured by make bench, written over by it -->"
	End   = "<!-- end: measured by make bench -->"
)

// Splice returns the document with the section between Begin and End, each a
// line of its own, in place of what is there. All else stays as it is.
func Splice(document, section string) (string, error) {
	before, rest, begins := cutLine(document, Begin)
	old, after, ends := cutLine(rest, End)
	if !begins || !ends {
		return "", errors.New("the document lacks a line " + Begin + " with a line " + End + " after it")
	}
	for _, part := range []string{before, old, after} {
		for _, marker := range []string{Begin, End} {
			if _, _, again := cutLine(part, marker); again {
				return "", errors.New("the document has the line " + marker + " more than once, or in the wrong place")
			}
		}
	}
	return before + Begin + "\n\n" + strings.Trim(section, "\n") + "\n\n" + End + "\n" + after, nil
}

// cutLine cuts around the first line that is exactly this.
func cutLine(s, line string) (before, after string, found bool) {
	for rest := s; rest != ""; {
		l, next, _ := strings.Cut(rest, "\n")
		if strings.TrimRight(l, " \t\r") == line {
			return s[:len(s)-len(rest)], next, true
		}
		rest = next
	}
	return s, "", false
}
