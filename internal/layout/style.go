package layout

// Style is how text stands out on a terminal; false is not at all. Whoever
// makes one finds out whether there is a terminal, and somebody who wants
// colours (no-color.org).
type Style bool

// Strong is for headings.
func (s Style) Strong(text string) string { return s.as("1", text) }

// Faint is for what matters less.
func (s Style) Faint(text string) string { return s.as("2", text) }

// Alarm is for what somebody should do something about.
func (s Style) Alarm(text string) string { return s.as("31", text) }

// Notice is for what is not as usual, and may be so for a reason.
func (s Style) Notice(text string) string { return s.as("33", text) }

func (s Style) as(code, text string) string {
	if !s || text == "" {
		return text
	}
	return paint + code + "m" + text + unpaint
}

// What a Style puts around a text (ECMA-48, SGR).
const (
	paint   = "\x1b["
	unpaint = paint + "0m"
)
