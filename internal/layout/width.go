package layout

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// Width is how many columns of a terminal a text takes.
func Width(s string) int {
	n := 0
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

// runeWidth is 2 for what East Asian scripts and most emoji take (Unicode
// Standard Annex 11), and 0 for what joins the character before it.
func runeWidth(r rune) int {
	if r < 0x300 { // nearly all there is
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// Clean makes visible what a terminal would obey or hide instead of showing it:
// control characters, escape sequences, and marks that turn the direction of
// writing. A line break becomes a space, so that a message stays one line.
func Clean(s string) string {
	if !strings.ContainsFunc(s, isUnsafe) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n' || r == '\t':
			b.WriteByte(' ')
		case r < 0x80 && isUnsafe(r):
			fmt.Fprintf(&b, `\x%02x`, r)
		case isUnsafe(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func isUnsafe(r rune) bool {
	if r < utf8.RuneSelf { // nearly all there is
		return r < ' ' || r == 0x7f
	}
	return unicode.IsControl(r) || r == unicode.ReplacementChar || unicode.Is(unicode.Bidi_Control, r) ||
		r == '\u2028' || r == '\u2029'
}

// Cut is a text in no more than most columns; what was cut off is an ellipsis.
// What a Style has painted stays painted, and no more than that.
func Cut(s string, most int) string {
	n, last, painted := 0, 0, false // last: where the ellipsis would go
	for i := 0; i < len(s); {
		if end := paintEnd(s[i:]); end > 0 {
			painted = true
			i += end
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if n += runeWidth(r); n > most {
			s = s[:last] + "…"
			if painted {
				s += unpaint
			}
			return s
		}
		i += size
		if n < most {
			last = i
		}
	}
	return s
}

// paintEnd is how long the sequence is that a text begins with, if a Style made
// it; else 0.
func paintEnd(s string) int {
	if !strings.HasPrefix(s, paint) {
		return 0
	}
	return strings.IndexByte(s, 'm') + 1
}

// Wrap breaks a text into lines of most columns, at spaces. A word that is
// longer has a line of its own.
func Wrap(text string, most int) []string {
	var lines []string
	line, used := "", 0
	for _, word := range strings.Fields(Clean(text)) {
		w := Width(word)
		if line != "" && used+1+w > most {
			lines = append(lines, line)
			line, used = "", 0
		}
		if line != "" {
			line, used = line+" ", used+1
		}
		line, used = line+word, used+w
	}
	return append(lines, line)
}
