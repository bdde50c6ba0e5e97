package layout

import "strings"

// gap is between two columns.
const gap = 2

// Cell is one field of a table.
type Cell struct {
	Text  string
	Right bool                // aligned at its right, as numbers are
	Paint func(string) string // a method of a Style; nil: as it is
}

// Text is a cell as most are.
func Text(s string) Cell { return Cell{Text: s} }

// Number is a cell aligned at its right.
func Number(s string) Cell { return Cell{Text: s, Right: true} }

// Painted is a cell that stands out.
func Painted(s string, paint func(string) string) Cell { return Cell{Text: s, Paint: paint} }

// Table is rows of cells, of which each column is as wide as its widest cell.
// The last cell of a row may be as long as it likes: where rows end in columns
// of their own, longer rows below are not moved by it. The zero value is empty.
type Table struct {
	rows   [][]Cell
	widths []int
}

// Row adds a row.
func (t *Table) Row(cells ...Cell) {
	for i := range cells {
		cells[i].Text = Clean(cells[i].Text)
		w := Width(cells[i].Text)
		if i == len(t.widths) {
			t.widths = append(t.widths, 0)
		}
		if i < len(cells)-1 || cells[i].Right {
			t.widths[i] = max(t.widths[i], w)
		}
	}
	t.rows = append(t.rows, cells)
}

// Head adds a row of headings. Those of columns that are aligned at their
// right start with ">".
func (t *Table) Head(s Style, names ...string) {
	cells := make([]Cell, len(names))
	for i, name := range names {
		name, right := strings.CutPrefix(name, ">")
		cells[i] = Cell{Text: name, Right: right, Paint: s.Strong}
	}
	t.Row(cells...)
}

// size is about how many bytes the table has.
func (t *Table) size() int {
	width := 1
	for _, w := range t.widths {
		width += w + gap
	}
	return width * len(t.rows)
}

// String is the table, a line for each row, without spaces at their ends.
func (t *Table) String() string {
	var b strings.Builder
	b.Grow(t.size())
	for _, row := range t.rows {
		spaces := 0 // to come before the next text
		for i, c := range row {
			pad := max(0, t.widths[i]-Width(c.Text))
			if c.Right {
				spaces, pad = spaces+pad, 0
			}
			if c.Text != "" {
				b.WriteString(strings.Repeat(" ", spaces))
				spaces = 0
				if c.Paint != nil {
					b.WriteString(c.Paint(c.Text))
				} else {
					b.WriteString(c.Text)
				}
			}
			spaces += pad + gap
		}
		b.WriteByte('\n')
	}
	return b.String()
}
