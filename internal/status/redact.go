package status

import (
	"regexp"

	"github.com/userspace-proxy/userspace-proxy/internal/explain"
)

// redactor hides what may be secret in messages that come from elsewhere: a
// client library puts the URL that it asked into its error, and a URL may hold
// a password.
type redactor struct{ userinfo, header, parameter *regexp.Regexp }

func newRedactor() redactor {
	return redactor{
		userinfo:  regexp.MustCompile(`(://)[^/?#\s"]*@`),
		header:    regexp.MustCompile(`(?i)\b((?:bearer|basic)\s+)[a-z0-9._~+/=-]{8,}`),
		parameter: regexp.MustCompile(`(?i)((?:^|[^\w/.-])(?:[a-z]+_)?(?:token|password|passwd|secret|api_?key)["']?\s*[=:]\s*)("[^"]*"|'[^']*'|[^\s&,;"')}]+)`),
	}
}

// text is a message without what may be secret in it.
func (r redactor) text(message string) string {
	const instead = "${1}(hidden)"
	message = r.userinfo.ReplaceAllString(message, instead+"@")
	message = r.header.ReplaceAllString(message, instead)
	return r.parameter.ReplaceAllString(message, instead)
}

// report hides it in every message of a report. The lists become its own.
func (r redactor) report(of Report) Report {
	of.Failing, of.Error, of.Hits.Error = r.text(of.Failing), r.text(of.Error), r.text(of.Hits.Error)
	sources := make([]Source, len(of.Sources))
	for i, s := range of.Sources {
		s.Error = r.text(s.Error)
		sources[i] = s
	}
	problems := make([]Problem, len(of.Problems))
	for i, p := range of.Problems {
		p.Object, p.Detail, p.Advice = r.text(p.Object), r.text(p.Detail), r.text(p.Advice)
		problems[i] = p
	}
	of.Sources, of.Problems = sources, problems
	return of
}

// answer hides it in an answer, whose lists become its own.
func (r redactor) answer(of explain.Answer) explain.Answer {
	steps, advice := make([]explain.Step, len(of.Steps)), make([]string, len(of.Advice))
	for i, s := range of.Steps {
		s.Text = r.text(s.Text)
		steps[i] = s
	}
	for i, what := range of.Advice {
		advice[i] = r.text(what)
	}
	of.Steps, of.Advice = steps, advice
	return of
}
