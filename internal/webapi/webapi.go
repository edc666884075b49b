// Package webapi speaks JSON over HTTP with a server of the user's: what it says of addresses and answers holds no secrets.
//
//	c, err := webapi.New(address, map[string]string{"Authorization": "Bearer " + key}, parallel)
//	err = webapi.Retry(ctx, webapi.Patience{Timeout: time.Minute, Retries: 3, Backoff: time.Second}, func(ctx context.Context) error {
//		reply, err = c.Do(ctx, http.MethodPost, "/score", body)
//		return err
//	})
package webapi

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"fulcrum/internal/jsonwords"
	"fulcrum/internal/secret"
)

// maxReply bounds an answer, in bytes.
const maxReply = 64 << 20

// Client sends requests to one address. It is safe for concurrent use.
type Client struct {
	Slow time.Duration // the longest that an answer may take once it has begun; 0 = no bound of its own

	base, shown string
	headers     map[string]string
	secrets     *strings.Replacer // an answer may repeat what it was sent
	client      *http.Client
}

// New returns a client of an http or https address that keeps up to parallel connections open.
func New(address string, headers map[string]string, parallel int) (*Client, error) {
	u, err := url.Parse(address)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("url: want an http or https address, got %q", secret.Mask(address))
	}
	pool := http.DefaultTransport.(*http.Transport).Clone()
	pool.MaxIdleConnsPerHost = parallel
	return &Client{base: address, shown: secret.Address(u), headers: headers, secrets: secretsOf(u, headers),
		client: &http.Client{Transport: pool, CheckRedirect: secret.SameHost}}, nil
}

// secretsOf hides the secrets of an address and of headers.
func secretsOf(u *url.URL, headers map[string]string) *strings.Replacer {
	var hidden []string
	hide := func(values ...string) {
		for _, v := range values {
			if len(v) >= 4 { // less would hide words
				hidden = append(hidden, v, "***")
			}
		}
	}
	for name, value := range headers {
		if secret.Named(name) {
			hide(value)
			hide(strings.Fields(value)...) // Bearer KEY
		}
	}
	if password, ok := u.User.Password(); ok {
		hide(password, base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password)))
	}
	for name, values := range u.Query() {
		if secret.Named(name) {
			hide(values...)
		}
	}
	return strings.NewReplacer(hidden...)
}

// Address is the address without secrets.
func (c *Client) Address() string { return c.shown }

// Close drops idle connections.
func (c *Client) Close() error {
	c.client.CloseIdleConnections()
	return nil
}

// Quote shortens what a server said for an error message and hides secrets in it.
func (c *Client) Quote(said []byte) string { return Clip(c.secrets.Replace(string(said))) }

// Whole reports an answer that is the beginning of a JSON text: it was cut on its way, and a further attempt may bring all of it.
func (c *Client) Whole(said []byte) error {
	if jsonwords.BreaksOff(said) {
		return fmt.Errorf("its answer of %d bytes breaks off: %s", len(said), c.Quote(said[max(0, len(said)-40):]))
	}
	return nil
}

// StatusError is an answer whose status is no success.
type StatusError struct {
	Code int
	Wait time.Duration // that the server asked for (Retry-After); 0 = it did not
	Said []byte        // the answer
	text string
}

func (e *StatusError) Error() string { return e.text }

// Busy reports whether the server has too much to do, or still loads its model.
func (e *StatusError) Busy() bool {
	return e.Code == http.StatusTooManyRequests || e.Code == http.StatusServiceUnavailable
}

// ExplainKey adds to a refusal for want of a key which key of the configuration names the variable that holds one; env is that variable,
// nil where none is named. A server without keys that forbids something (403) forbids what it has not enabled, as vLLM does.
func ExplainKey(err error, key string, env *string) error {
	status, ok := errors.AsType[*StatusError](err)
	switch {
	case !ok || status.Code != http.StatusUnauthorized && (status.Code != http.StatusForbidden || env == nil):
		return err
	case env == nil:
		return fmt.Errorf("%w: it wants a key: %s=NAME of the variable that holds it", err, key)
	}
	return fmt.Errorf("%w: it does not take the key in %s (%s)", err, *env, key)
}

// Do sends a request and returns the body of a successful answer. Any other status is a *StatusError; an error that no
// further attempt can mend is Permanent.
func (c *Client) Do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, Permanent{Err: secret.Cause(err)}
	}
	if body != nil && method == http.MethodPut { // a file
		req.Header.Set("Content-Type", "application/octet-stream")
	} else if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for k, v := range c.headers {
		req.Header.Set(k, v)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	reply, err := c.client.Do(req.WithContext(ctx))
	if away, ok := errors.AsType[*secret.RedirectError](err); ok {
		return nil, Permanent{Err: away}
	}
	if errors.Is(err, io.EOF) {
		return nil, errors.New("the server closed the connection without an answer")
	}
	if err != nil {
		return nil, secret.Cause(err)
	}
	defer reply.Body.Close()
	if c.Slow > 0 {
		defer time.AfterFunc(c.Slow, func() {
			stop(Permanent{Err: fmt.Errorf("its answer has not come to an end in %v", c.Slow)})
		}).Stop()
	}
	said, err := io.ReadAll(io.LimitReader(reply.Body, maxReply+1))
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	if len(said) > maxReply {
		return nil, Permanent{Err: fmt.Errorf("the answer is longer than %d MiB", maxReply>>20)}
	}
	if code := reply.StatusCode; code < 200 || code > 299 {
		seconds, _ := strconv.ParseFloat(reply.Header.Get("Retry-After"), 64) // a date is no number: 0
		err := &StatusError{Code: code, Wait: time.Duration(max(0, seconds) * float64(time.Second)), Said: said,
			text: fmt.Sprintf("status %s: %s", reply.Status, c.Quote(said))}
		if code == http.StatusRequestTimeout || code == http.StatusTooManyRequests || code >= 500 {
			return nil, err
		}
		return nil, Permanent{Err: err}
	}
	return said, nil
}

// Permanent marks an error that a retry would meet again.
type Permanent struct{ Err error }

func (p Permanent) Error() string { return p.Err.Error() }

func (p Permanent) Unwrap() error { return p.Err }

// Patience says how long and how often something is tried.
type Patience struct {
	Timeout time.Duration                   // of one attempt
	Retries int                             // further attempts
	Busy    int                             // of them, where the server is busy, if more
	Backoff time.Duration                   // before the first of them; doubles with each
	What    string                          // that a time-out says is missing: "no scores for 3 items"
	Turn    func(ctx context.Context) error // waits until an attempt may begin, which its Timeout does not count; nil = at once
}

// Retry tries until it succeeds, fails for good, or has been tried often enough. It waits longer where a server asks for that,
// at most a Timeout.
func Retry(ctx context.Context, p Patience, try func(ctx context.Context) error) error {
	wait := p.Backoff
	for n := 1; ; n++ {
		if p.Turn != nil {
			if err := p.Turn(ctx); err != nil {
				return err
			}
		}
		limited, cancel := context.WithTimeout(ctx, p.Timeout)
		err := try(limited)
		late := limited.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case late:
			err = fmt.Errorf("%s within timeout_seconds=%v: %w", p.What, p.Timeout.Seconds(), err)
		}
		pause, retries := wait, p.Retries
		if status, ok := errors.AsType[*StatusError](err); ok {
			pause = max(pause, min(status.Wait, p.Timeout))
			if status.Busy() {
				retries = max(retries, p.Busy)
			}
		}
		if _, forGood := errors.AsType[Permanent](err); forGood || retries == 0 {
			return err
		}
		if n > retries {
			return fmt.Errorf("%d attempts: %w", n, err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		wait *= 2
	}
}

// Clip shortens a text for an error message and puts it on one line.
func Clip(s string) string {
	s = strings.TrimSpace(s)
	if len(s) > 400 {
		s = "…" + strings.ToValidUTF8(s[len(s)-400:], "")
	}
	return strings.ReplaceAll(s, "\n", " | ")
}
