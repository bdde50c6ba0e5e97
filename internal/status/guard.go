package status

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// plain keeps browsers from making something else of what they are told.
func plain(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// readOnly answers GET and HEAD alone: nobody changes anything here.
func readOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "this server answers GET and HEAD only", http.StatusMethodNotAllowed)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// namedHere answers those who ask this server by a name of its own. A web page
// can have its own name lead to 127.0.0.1 (DNS rebinding), and then its
// visitor's browser would let it read what is told here; but the browser says
// whom it means to ask, which is the page's name. An address in numbers is
// nobody else's to choose, so all of those are taken: a node may be reached by
// one that it does not know of.
func (c Config) namedHere(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !c.isHere(r.Host) {
			http.Error(w, fmt.Sprintf("%q is no name of this server: ask by %s, or by an address of this node in numbers",
				r.Host, strings.Join(append([]string{"localhost"}, c.Names...), ", ")), http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isHere says whether a request's Host, with a port or without, is this
// server's. Who speaks HTTP/1.0 may name none, and no browser does.
func (c Config) isHere(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == "" || host == "localhost" || slices.Contains(c.Names, host) {
		return true
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil
}
