package report

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Row is one kind of work, and what each path made of it.
type Row struct {
	Title   string
	Note    string // what is said before the table, if anything
	After   string // and after it
	Columns []Metric
	Targets []Target
	Samples map[string][]Sample // by path
}

// Report is all rows of one run.
type Report struct {
	Paths []string // in the order of the tables' lines
	Ours  string   // the path that the targets are for
	Peers []string // the paths that the others are compared with
	Facts []Fact   // about machine and run
	Rows  []Row
}

// Fact is one line about the machine or the run.
type Fact struct{ Name, Value string }

// Verdicts are those of all rows, by row.
func (r *Report) verdicts(row *Row) []Verdict {
	all := make([]Verdict, 0, len(row.Targets))
	for _, t := range row.Targets {
		all = append(all, t.judge(row, r.Ours))
	}
	return all
}

// Missed is how many targets were measured and are not met.
func (r *Report) Missed() int {
	n := 0
	for i := range r.Rows {
		for _, v := range r.verdicts(&r.Rows[i]) {
			if v.Known && !v.Met {
				n++
			}
		}
	}
	return n
}

// Markdown is the whole report. It reads as well as plain text.
func (r *Report) Markdown() string {
	var b strings.Builder
	for _, f := range r.Facts {
		fmt.Fprintf(&b, "- %s: %s\n", f.Name, f.Value)
	}
	for i := range r.Rows {
		row := &r.Rows[i]
		fmt.Fprintf(&b, "\n### %s\n\n", row.Title)
		if row.Note != "" {
			fmt.Fprintf(&b, "%s\n\n", row.Note)
		}
		b.WriteString(grid(r.lines(row), 1))
		if row.After != "" {
			fmt.Fprintf(&b, "\n%s\n", row.After)
		}
	}
	targets := [][]string{{"work", "target for " + r.Ours, "measured", ""}}
	for i := range r.Rows {
		title := r.Rows[i].Title
		for _, v := range r.verdicts(&r.Rows[i]) {
			targets = append(targets, []string{title, v.Target.String(), v.outcome(), v.word()})
			title = ""
		}
	}
	if len(targets) > 1 {
		fmt.Fprintf(&b, "\n### Targets\n\n%s", grid(targets, 4))
	}
	return b.String()
}

// lines are a row's table: a line for each path that was measured. After a
// metric that there is a target for stands the ratio to the better peer.
func (r *Report) lines(row *Row) [][]string {
	head := []string{"path"}
	for _, m := range row.Columns {
		head = append(head, m.String())
		if spreads(m) {
			head = append(head, "±")
		}
		if compares(m) {
			head = append(head, "× peer")
		}
	}
	lines := [][]string{head}
	for _, path := range r.Paths {
		if len(row.Samples[path]) == 0 {
			continue
		}
		line := []string{path}
		for _, m := range row.Columns {
			line = append(line, r.cells(row, path, m)...)
		}
		lines = append(lines, line)
	}
	return lines
}

// cells are a metric's value, spread and ratio, as far as it has them.
func (r *Report) cells(row *Row, path string, m Metric) []string {
	s, ok := m.summarise(row.Samples[path])
	value, spread, ratio := "", "", ""
	if ok {
		value = m.Format(s.Value)
		if s.Spreads {
			spread = strconv.FormatFloat(100*s.Spread, 'f', 0, 64) + " %"
		}
		if best, _ := row.best(m, r.Peers, higherIsBetter(m)); best > 0 {
			ratio = strconv.FormatFloat(s.Value/best, 'f', 2, 64)
		}
	}
	cells := []string{value}
	if spreads(m) {
		cells = append(cells, spread)
	}
	if compares(m) {
		cells = append(cells, ratio)
	}
	return cells
}

func spreads(m Metric) bool        { return m == Rate || m == Throughput }
func higherIsBetter(m Metric) bool { return m == Rate || m == Throughput || m == Held || m == Alive }
func compares(m Metric) bool {
	return m == Rate || m == Throughput || m == CPU || m == CPUPerGB || m == Memory
}

// grid is a Markdown table with columns as wide as they need to be; all but the
// first few stand to the right.
func grid(lines [][]string, left int) string {
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell), 3)
		}
	}
	var b strings.Builder
	for n, line := range lines {
		for i, cell := range line {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i < left {
				b.WriteString("| " + cell + pad + " ")
			} else {
				b.WriteString("| " + pad + cell + " ")
			}
		}
		b.WriteString("|\n")
		if n > 0 {
			continue
		}
		for i, w := range widths {
			rule := strings.Repeat("-", w+1)
			if i < left {
				b.WriteString("|" + rule + "-")
			} else {
				b.WriteString("|" + rule + ":")
			}
		}
		b.WriteString("|\n")
	}
	return b.String()
}

// listed joins names: "a", "a and b", "a, b and c".
func listed(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}
