package file

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-multierror"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// The reasons of faults, as service.Problem has them.
const (
	unreadable      = "FileUnreadable"
	badSyntax       = "FileSyntax"
	unknownKind     = "UnknownKind"
	unknownField    = "UnknownField"
	duplicateKey    = "DuplicateKey"
	wrongType       = "WrongType"
	invalidValue    = "InvalidValue"
	missingValue    = "MissingValue"
	duplicateObject = "DuplicateObject"
)

// mostFaults is how many faults of one file are told; a file of another kind
// altogether would otherwise fill the screen.
const mostFaults = 50

// fault is one thing that is wrong in one place. It is an error.
type fault struct {
	file   string // as people named it
	line   int    // 0 where the whole file is meant
	object string // "Service default/web"; empty where no object is known
	field  string // "spec.ports[0].port"; empty where the whole object is meant
	reason string
	detail string // what is wrong
	advice string // what to do about it
}

// Error is the fault on one line, in the order that editors and people follow:
// file, line, object, field.
func (f *fault) Error() string {
	var b strings.Builder
	b.WriteString(f.file)
	if f.line > 0 {
		b.WriteString(":" + strconv.Itoa(f.line))
	}
	for _, s := range []string{f.object, f.field, f.detail} {
		if s != "" {
			b.WriteString(": " + s)
		}
	}
	if f.advice != "" {
		b.WriteString(" (" + f.advice + ")")
	}
	return b.String()
}

// problem is the fault as a running proxy reports it. The object to mend is
// the file: what it holds is not in use.
func (f *fault) problem() service.Problem {
	p := service.Problem{
		Object: "file " + f.file,
		Field:  f.object,
		Reason: f.reason,
		Detail: f.detail,
		Advice: f.advice,
	}
	if f.field != "" {
		p.Field = strings.TrimPrefix(p.Field+" "+f.field, " ")
	}
	if f.line > 0 {
		p.Detail = "line " + strconv.Itoa(f.line) + ": " + p.Detail
	}
	return p
}

// inOrder sorts the faults of one file by line and cuts what is too much.
func inOrder(faults []*fault) []*fault {
	slices.SortStableFunc(faults, func(a, b *fault) int { return cmp.Compare(a.line, b.line) })
	if more := len(faults) - mostFaults; more > 0 {
		faults = append(faults[:mostFaults:mostFaults], &fault{
			file:   faults[0].file,
			reason: faults[mostFaults].reason,
			detail: strconv.Itoa(more) + " more faults are not shown",
		})
	}
	return faults
}

// errorOf is the faults as one error, a line each; nil where there is none.
func errorOf(faults []*fault) error {
	all := &multierror.Error{ErrorFormat: lines}
	for _, f := range faults {
		all = multierror.Append(all, f)
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
