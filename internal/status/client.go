package status

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/userspace-proxy/userspace-proxy/internal/explain"
)

// Client asks the status server of a running proxy. Close it.
type Client struct {
	base string
	http http.Client
}

// NewClient makes a client of an address as people give it: a URL, or a host and
// a port.
func NewClient(address string) (*Client, error) {
	base := address
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" || u.Hostname() == "" || u.Path != "" && u.Path != "/" || u.User != nil || u.RawQuery != "" {
		return nil, fmt.Errorf("%q is not an address like http://127.0.0.1:10249", address)
	}
	return &Client{
		base: "http://" + u.Host,
		// No proxy of the environment's: the answer is about this very address.
		http: http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{}},
	}, nil
}

// Base is where the client asks, for people.
func (c *Client) Base() string { return c.base }

// Close ends the connections that are kept.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Report is what is served, with as many connections and flows as lists says.
func (c *Client) Report(ctx context.Context, lists Lists) (Report, error) {
	var r Report
	err := c.get(ctx, "/statusz?"+url.Values{
		"connections": {strconv.Itoa(lists.Connections)}, "flows": {strconv.Itoa(lists.Flows)}, asCompact: {""},
	}.Encode(), &r)
	return r, err
}

// Explain is what becomes of a packet.
func (c *Client) Explain(ctx context.Context, q explain.Question) (explain.Answer, error) {
	var a explain.Answer
	err := c.get(ctx, "/explain?"+q.Values().Encode(), &a)
	return a, err
}

// get asks for JSON. An error says what to do.
func (c *Client) get(ctx context.Context, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, http.NoBody)
	if err != nil {
		return err // the address was parsed before
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return c.noAnswer(err)
	}
	defer answer.Body.Close() //nolint:errcheck // it was only read
	var text bytes.Buffer
	if n := answer.ContentLength; n > 0 && n < mostRoom {
		text.Grow(int(n) + bytes.MinRead)
	}
	if _, err := text.ReadFrom(io.LimitReader(answer.Body, mostAnswer+1)); err != nil {
		return c.noAnswer(err)
	}
	if text.Len() > mostAnswer {
		return fmt.Errorf("what answers at %s is no userspace-proxy: it sends more than %d MiB", c.base, mostAnswer>>20)
	}
	body := text.Bytes()
	where, _, _ := strings.Cut(path, "?")
	switch {
	case answer.StatusCode == http.StatusNotFound:
		return fmt.Errorf("what answers at %s has no %s: it is another program, or an older version of this one", c.base, where)
	case answer.StatusCode != http.StatusOK:
		return fmt.Errorf("%s answers %d %s to %s: %s", c.base, answer.StatusCode, http.StatusText(answer.StatusCode), where, firstLine(body))
	case !strings.HasPrefix(answer.Header.Get("Content-Type"), "application/json"):
		return fmt.Errorf("what answers at %s is no userspace-proxy: %s is not JSON there", c.base, where)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("what answers at %s is no userspace-proxy of this version: %w", c.base, err)
	}
	return nil
}

// mostAnswer is how many bytes are read of an answer. A proxy with 100,000
// Services sends fewer.
const mostAnswer = 512 << 20

// mostRoom is how many bytes are believed to come before they have.
const mostRoom = 64 << 20

// noAnswer says why nobody answers, and what to do.
func (c *Client) noAnswer(err error) error {
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err // the address is named here
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		err = op.Err
	}
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		err = errors.New("no answer in time")
	}
	return fmt.Errorf("no proxy answers at %s: %w\n"+
		"is one running on this node? --address says where its --metrics-bind-address is", c.base, err)
}

// firstLine is without what would move a terminal's cursor: whoever answers may
// have written it.
func firstLine(body []byte) string {
	const most = 300
	line, _, _ := strings.Cut(strings.TrimSpace(string(body[:min(len(body), most)])), "\n")
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, line)
}
