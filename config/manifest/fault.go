package manifest

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/hashicorp/go-multierror"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// The reasons of faults, as service.Problem has them.
const (
	ReasonSyntax          = "FileSyntax"
	ReasonUnknownKind     = "UnknownKind"
	ReasonUnknownField    = "UnknownField"
	ReasonDuplicateKey    = "DuplicateKey"
	ReasonWrongType       = "WrongType"
	ReasonInvalidValue    = "InvalidValue"
	ReasonMissingValue    = "MissingValue"
	ReasonDuplicateObject = "DuplicateObject"
)

// mostFaults is how many faults of one text are told; a file of another kind
// altogether would otherwise fill the screen.
const mostFaults = 50

// enoughFaults is after how many faults a text is not read any further: each
// costs a look at the others of its object, and a small file can have a million.
const enoughFaults = 1000

// longestPart is how many bytes of a fault's object, field, detail or advice are
// told. A good one has less; a bad one may be a whole file's text.
const longestPart = 300

// Fault is one thing that is wrong in one place.
type Fault struct {
	File   string // as people named it
	Line   int    // 0 where the whole file is meant
	Object string // "Service default/web"; empty where no object is known
	Field  string // "spec.ports[0].port"; empty where the whole object is meant
	Reason string
	Detail string // what is wrong
	Advice string // what to do about it
}

// String is the fault on one line, in the order that editors and people follow:
// file, line, object, field.
func (f *Fault) String() string {
	var b strings.Builder
	b.WriteString(f.File)
	if f.Line > 0 {
		b.WriteString(":" + strconv.Itoa(f.Line))
	}
	for _, s := range []string{f.Object, f.Field, f.Detail} {
		if s != "" {
			b.WriteString(": " + tame(s))
		}
	}
	if f.Advice != "" {
		b.WriteString(" (" + tame(f.Advice) + ")")
	}
	return b.String()
}

// tame is text from a file as a terminal and a log may have it: short, on one
// line, and without what would move a cursor or turn letters around.
func tame(s string) string {
	rest := ""
	if len(s) > longestPart {
		s, rest = s[:longestPart], "…"
	}
	if strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
		quoted := strconv.Quote(strings.ToValidUTF8(s, ""))
		s = strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
	}
	return s + rest
}

// Problem is the fault as a running proxy reports it. The object to mend is
// where the text stands, a file for instance: what it holds is not in use.
func (f *Fault) Problem(in string) service.Problem {
	p := service.Problem{
		Object: in,
		Field:  tame(f.Object),
		Reason: f.Reason,
		Detail: tame(f.Detail),
		Advice: tame(f.Advice),
	}
	if f.Field != "" {
		p.Field = strings.TrimPrefix(p.Field+" "+tame(f.Field), " ")
	}
	if f.Line > 0 {
		p.Detail = "line " + strconv.Itoa(f.Line) + ": " + p.Detail
	}
	return p
}

// inOrder sorts the faults of one file by line and cuts what is too much.
func inOrder(faults []*Fault) []*Fault {
	slices.SortStableFunc(faults, func(a, b *Fault) int { return cmp.Compare(a.Line, b.Line) })
	if more := len(faults) - mostFaults; more > 0 {
		rest := faults[mostFaults:]
		grave := slices.IndexFunc(rest, func(f *Fault) bool { return f.Reason != ReasonUnknownField })
		faults = append(faults[:mostFaults:mostFaults], &Fault{
			File:   faults[0].File,
			Reason: rest[max(grave, 0)].Reason, // or the object would seem fit for use
			Detail: strconv.Itoa(more) + " more faults are not shown",
		})
	}
	return faults
}

// ErrorOf is faults as one error, a line each; nil where there is none.
func ErrorOf(faults []*Fault) error {
	all := &multierror.Error{ErrorFormat: lines}
	for _, f := range faults {
		all = multierror.Append(all, errors.New(f.String()))
	}
	return all.ErrorOrNil()
}

// lines is a multierror without a heading: each fault says by itself where it is.
func lines(errs []error) string {
	text := make([]string, len(errs))
	for i, err := range errs {
		text[i] = err.Error()
	}
	return strings.Join(text, "\n")
}
