package status

import (
	"net/http"
	"time"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// Health is how the proxy does, as far as probes are told. What is told to them
// may be read by anybody, so it names no Service, address or path.
type Health struct {
	Updated    time.Time // when everything was last as wanted; zero before the first time
	Starting   string    // what is waited for before anything is served; empty: nothing is
	Failing    string    // why what is wanted cannot be done now; what was served is served on
	Overdue    bool      // and that, or something else, was to be done long ago
	UsedUp     bool      // no descriptor is left for new clients
	Draining   bool      // the proxy is about to end
	Ineligible string    // why the node had better get no new clients, although the proxy does its work

	Stale    []string         // names of sources that fail; their last state is served on
	Families []service.Family // that are served
}

// The questions that probes ask. Each answer is the reason for a no.

// notLive is why a restart may help.
func (h Health) notLive() string {
	switch {
	case !h.Overdue:
		return ""
	case h.Failing != "":
		return h.Failing
	}
	return "what is to be served has not been done in time"
}

// NotHealthy is why new clients had better be sent to another node. What was
// served is served on while a change fails, so that alone is no reason before
// it is overdue: a change that fails on all nodes would take all of them away.
func (h Health) NotHealthy() string {
	switch {
	case h.Draining:
		return "the proxy is stopping"
	case h.Starting != "":
		return h.Starting
	case h.UsedUp:
		return "descriptors are used up: new clients wait"
	}
	return h.notLive()
}

// NotReady is why not all that is wanted is served.
func (h Health) NotReady() string {
	if why := h.NotHealthy(); why != "" {
		return why
	}
	return h.Failing
}

// healthAnswer is what kube-proxy answers, with more at its end.
type healthAnswer struct {
	LastUpdated  time.Time                       `json:"lastUpdated"`
	CurrentTime  time.Time                       `json:"currentTime"`
	NodeEligible *bool                           `json:"nodeEligible,omitempty"`
	Healthy      bool                            `json:"healthy"`
	Status       map[service.Family]familyHealth `json:"status,omitempty"`

	Failing      string   `json:"failing,omitempty"`
	StaleSources []string `json:"staleSources,omitempty"`
}

// familyHealth is a proxier's, of which kube-proxy has one for each family.
// Here both are done in one, so they differ in nothing.
type familyHealth struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

// answer says 200 or 503 and why. As with kube-proxy lastUpdated is recent
// while all is well.
func (h Health) answer(why string, now time.Time) (int, healthAnswer) {
	a := healthAnswer{LastUpdated: h.Updated, CurrentTime: now, Healthy: why == "", Failing: why, StaleSources: h.Stale}
	if !h.Updated.IsZero() {
		a.Status = make(map[service.Family]familyHealth)
		for _, f := range h.Families {
			a.Status[f] = familyHealth{LastUpdated: h.Updated, Healthy: h.notLive() == ""}
		}
	}
	if !a.Healthy {
		return http.StatusServiceUnavailable, a
	}
	a.LastUpdated = now
	return http.StatusOK, a
}

func (c Config) addHealth(mux *http.ServeMux) {
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		h := c.health()
		code, a := h.answer(h.notLive(), time.Now())
		c.Probes.live(code)
		writeJSON(w, code, a)
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		h := c.health()
		code, a := h.answer(h.NotHealthy(), time.Now())
		eligible := !h.Draining && h.Ineligible == ""
		if a.Healthy && !eligible {
			code, a.Failing, a.LastUpdated = http.StatusServiceUnavailable, h.Ineligible, h.Updated
		}
		a.NodeEligible = &eligible
		c.Probes.healthy(code)
		writeJSON(w, code, a)
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		h := c.health()
		code, a := h.answer(h.NotReady(), time.Now())
		writeJSON(w, code, a)
	})
}

// health is what may be told to anybody.
func (c Config) health() Health {
	h := c.Health()
	h.Failing = newRedactor().text(h.Failing)
	return h
}
