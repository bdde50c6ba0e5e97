package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/userspace-proxy/userspace-proxy/proxy"
)

const traceFlag = "--trace-connections"

// checkTrace reads whose connections are to be traced.
func (o *options) checkTrace(c *checks) {
	for _, text := range o.trace {
		traced, err := parseTraced(text)
		c.check(traceFlag, err)
		o.meant.traced = append(o.meant.traced, traced)
	}
	if len(o.trace) > 0 && o.meant.level < logrus.InfoLevel && o.meant.level >= logrus.ErrorLevel {
		c.check(traceFlag, fmt.Errorf("writes at level info, which --log-level=%s leaves out", o.logLevel))
	}
}

// parseTraced reads service=[NAMESPACE/]NAME[:PORT].
func parseTraced(text string) (proxy.Traced, error) {
	var t proxy.Traced
	fail := func(what string) (proxy.Traced, error) {
		return t, fmt.Errorf("must be service=NAMESPACE/NAME, or with :PORT, a port's name, behind it, or service=NAME for any namespace; got %q%s", text, what)
	}
	name, ok := strings.CutPrefix(text, "service=")
	if !ok {
		return fail("")
	}
	rest, port, hasPort := strings.Cut(name, ":")
	namespace, name, hasNamespace := strings.Cut(rest, "/")
	if !hasNamespace {
		namespace, name = "", rest
	}
	var errs []error
	check := func(what, value string, given bool) {
		if faults := validation.IsDNS1123Label(value); given && len(faults) > 0 {
			errs = append(errs, fmt.Errorf("%s %q: %s", what, value, faults[0]))
		}
	}
	check("namespace", namespace, hasNamespace)
	check("name", name, true)
	check("port", port, hasPort)
	if err := errors.Join(errs...); err != nil {
		return fail(": " + strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return proxy.Traced{Namespace: namespace, Name: name, Port: port}, nil
}
