package status

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/pprof"
	"strconv"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/sirupsen/logrus"

	"github.com/userspace-proxy/userspace-proxy/internal/explain"
)

// healthOnly is what probes may ask, from other machines too, by whatever name
// a load balancer has for this one.
func healthOnly(c Config) http.Handler {
	mux := http.NewServeMux()
	c.addHealth(mux)
	return plain(readOnly(mux))
}

// everything is for those who may know everything.
func everything(c Config) http.Handler {
	mux := http.NewServeMux()
	c.addHealth(mux)
	mux.HandleFunc("GET /{$}", c.index)
	mux.HandleFunc("GET /statusz", c.statusz)
	mux.HandleFunc("GET /explain", c.explain)
	mux.HandleFunc("GET /configz", c.configz)
	mux.HandleFunc("GET /proxyMode", proxyMode)
	mux.Handle("GET /metrics", promhttp.HandlerFor(c.Metrics, promhttp.HandlerOpts{
		ErrorLog:      promLog{c.Log},
		ErrorHandling: promhttp.ContinueOnError,
	}))
	if c.Profiling {
		// Index serves the named profiles too.
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return plain(readOnly(c.namedHere(mux)))
}

// statusz lists a thousand connections and flows at most, or as many as
// ?connections=N&flows=N asks for.
func (c Config) statusz(w http.ResponseWriter, r *http.Request) {
	lists := Lists{Connections: listed, Flows: listed}
	for name, n := range map[string]*int{"connections": &lists.Connections, "flows": &lists.Flows} {
		text := r.URL.Query().Get(name)
		if text == "" {
			continue
		}
		asked, err := strconv.Atoi(text)
		if err != nil || asked < 0 || asked > MostListed {
			http.Error(w, fmt.Sprintf("%s: %q is not a number from 0 to %d", name, text, MostListed), http.StatusBadRequest)
			return
		}
		*n = asked
	}
	write := writeJSON
	if r.URL.Query().Has(asCompact) {
		write = writeCompact
	}
	write(w, http.StatusOK, newRedactor().report(c.Report(lists)).whole())
}

// explain answers a question like ?protocol=tcp&to=10.96.0.10:80&from=192.0.2.1.
func (c Config) explain(w http.ResponseWriter, r *http.Request) {
	q, err := explain.ParseValues(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	writeJSON(w, http.StatusOK, newRedactor().answer(c.Explain(q)))
}

// configz shows the effective configuration as kube-proxy shows its own.
func (c Config) configz(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{"kubeproxy.config.k8s.io": c.Configuration})
}

// proxyMode answers what asks a kube-proxy which it is.
func proxyMode(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("userspace")) // as in writeJSON
}

// writeJSON is indented: who asks by hand reads it, and who asks by program
// does not mind.
func writeJSON(w http.ResponseWriter, code int, v any) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false) // this is no HTML, and nosniff keeps it so
	if err := e.Encode(v); err != nil {
		noJSON(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(text.Bytes()) // a client that has gone wants no answer
}

// asCompact in a query asks for JSON as programs read it. With ten thousand
// Services indenting takes half of the time, and of the bytes a third.
const asCompact = "compact"

func writeCompact(w http.ResponseWriter, code int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		noJSON(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text))) // so that who reads it can make room at once
	w.WriteHeader(code)
	_, _ = w.Write(text) // as in writeJSON
}

func noJSON(w http.ResponseWriter, err error) {
	http.Error(w, fmt.Sprintf("cannot put the answer into JSON: %v", err), http.StatusInternalServerError)
}

func (c Config) index(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	page := index
	if c.Profiling {
		page += `<li><a href="/debug/pprof/">/debug/pprof/</a> where time and memory go` + "\n"
	}
	_, _ = w.Write([]byte(page)) // as in writeJSON
}

const index = `<!doctype html>
<html lang="en"><meta charset="utf-8"><title>userspace-proxy</title>
<h1>userspace-proxy</h1>
<ul>
<li><a href="/statusz">/statusz</a> what is served, and what stands in the way
<li><a href="/explain?protocol=tcp&amp;to=10.96.0.1:443">/explain?protocol=tcp&amp;to=10.96.0.1:443&amp;from=192.0.2.1</a> what becomes of a packet
<li><a href="/metrics">/metrics</a> for Prometheus
<li><a href="/configz">/configz</a> the effective configuration, in kube-proxy's form; <a href="/proxyMode">/proxyMode</a>
<li><a href="/healthz">/healthz</a>, <a href="/livez">/livez</a>, <a href="/readyz">/readyz</a> for probes
`

// promLog takes what collectors fail with.
type promLog struct{ log logrus.FieldLogger }

// Println is what promhttp calls.
func (l promLog) Println(v ...any) { l.log.Warn("metrics: ", fmt.Sprint(v...)) }
