package layout

import (
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
)

func TestWidth(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"": 0, "web": 3, "日本語": 6, "한국": 4, "ﾊﾝｶｸ": 4, "Ａ": 2, "é": 1, "e\u0301": 1, "🙂": 2, "a\u200db": 2, "…": 1, "Ω": 1, "мир": 3,
	} {
		assert.Equal(t, want, Width(text), "%q", text)
	}
}

func TestClean(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain":                   "plain",
		"日本":                      "日本",
		"two\nlines\tand":         "two lines and",
		"\x1b[31mred\x1b[0m":      `\x1b[31mred\x1b[0m`,
		"\x07bell \x7f \x00":      `\x07bell \x7f \x00`,
		"c1 \u009b31m":            `c1 \u009b31m`,
		"turned \u202egnp.exe":    `turned \u202egnp.exe`,
		"not UTF-8 \xff":          `not UTF-8 \ufffd`,
		"paragraph\u2029separate": `paragraph\u2029separate`,
	} {
		assert.Equal(t, want, Clean(text))
	}
}

func TestCut(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "short", Cut("short", 5))
	assert.Equal(t, "long…", Cut("longer", 5))
	assert.Equal(t, "日本…", Cut("日本語", 5))
	assert.Equal(t, "日…", Cut("日本語", 4))
	alarm := Style(true).Alarm
	assert.Equal(t, alarm("red")+" plain", Cut(alarm("red")+" plain", 9))
	assert.Equal(t, alarm("re…"), Cut(alarm("redder"), 3))
	assert.Equal(t, alarm("red…"), Cut(alarm("red")+" plain", 4))
}

func TestWrap(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"one two", "three"}, Wrap("one  two\nthree", 8))
	assert.Equal(t, []string{"日本", "日本"}, Wrap("日本 日本", 8))
	assert.Equal(t, []string{"a", "muchtoolong", "b"}, Wrap("a muchtoolong b", 4))
	assert.Equal(t, []string{""}, Wrap("", 4))
}

func TestTable(t *testing.T) {
	t.Parallel()
	var table Table
	table.Head(false, "NAME", ">COUNT", "WHY")
	table.Row(Text("日本"), Number("7"), Text("ready"))
	table.Row(Text("web\x1b[2J"), Number("12345"), Text(""))
	table.Row(Text("a row whose last cell is long"))
	table.Row(Text(""), Text(""), Text("e\u0301"))
	assert.Equal(t, `NAME        COUNT  WHY
日本            7  ready
web\x1b[2J  12345
a row whose last cell is long
                   é
`, table.String())

	var painted Table
	painted.Head(true, "A", ">B")
	painted.Row(Painted("x", Style(true).Alarm), Number(""))
	assert.Equal(t, "\x1b[1mA\x1b[0m  \x1b[1mB\x1b[0m\n\x1b[31mx\x1b[0m\n", painted.String())
	assert.Empty(t, new(Table).String())
}

// FuzzClean: whatever comes, a terminal obeys nothing, and Cut keeps its word.
func FuzzClean(f *testing.F) {
	f.Add("\x1b]0;title\x07")
	f.Fuzz(func(t *testing.T, s string) {
		clean := Clean(s)
		assert.False(t, strings.ContainsFunc(clean, unicode.IsControl), "%q", clean)
		assert.LessOrEqual(t, Width(Cut(clean, 10)), 10)
		for _, line := range Wrap(s, 20) {
			assert.True(t, Width(line) <= 20 || !strings.Contains(line, " "), "%q", line)
		}
	})
}
