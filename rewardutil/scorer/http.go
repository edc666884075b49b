package scorer

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"fulcrum/internal/secret"
)

// maxReply bounds a scorer's answer, in bytes.
const maxReply = 64 << 20

// httpTransport posts batches to an address. What it says of the address and of the answers holds no secrets.
type httpTransport struct {
	url, shown string
	headers    map[string]string
	secrets    *strings.Replacer // an answer may repeat what it was sent
	client     *http.Client
}

func newHTTPTransport(opt Options) (*httpTransport, error) {
	u, err := url.Parse(*opt.URL)
	if err != nil {
		return nil, fmt.Errorf("url: want an http or https address, got %q", secret.Mask(*opt.URL))
	}
	pool := http.DefaultTransport.(*http.Transport).Clone()
	pool.MaxIdleConnsPerHost = opt.Parallel
	return &httpTransport{url: *opt.URL, shown: secret.Address(u), headers: opt.Headers, secrets: secretsOf(u, opt.Headers),
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

func (t *httpTransport) name() string { return t.shown }

func (t *httpTransport) Close() error {
	t.client.CloseIdleConnections()
	return nil
}

func (t *httpTransport) Score(ctx context.Context, items [][]byte) ([]float64, error) {
	body := append([]byte(`{"items":[`), bytes.Join(items, []byte(","))...)
	body = append(body, "]}"...)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(body))
	if err != nil {
		return nil, permanent{secret.Cause(err)}
	}
	req.Header.Set("Content-Type", "application/json")
	for k, v := range t.headers {
		req.Header.Set(k, v)
	}
	reply, err := t.client.Do(req)
	var away *secret.RedirectError
	if errors.As(err, &away) {
		return nil, permanent{away}
	}
	if err != nil {
		return nil, secret.Cause(err)
	}
	defer reply.Body.Close()
	said, err := io.ReadAll(io.LimitReader(reply.Body, maxReply))
	if err != nil {
		return nil, err
	}
	if code := reply.StatusCode; code < 200 || code > 299 {
		err := fmt.Errorf("status %s: %s", reply.Status, clipText(t.secrets.Replace(string(said))))
		if code == http.StatusRequestTimeout || code == http.StatusTooManyRequests || code >= 500 {
			return nil, err
		}
		return nil, permanent{err}
	}
	return parseReply(said, t.secrets)
}

// parseReply reads {"scores": [numbers]} or the list alone. Errors hide secrets.
func parseReply(said []byte, secrets *strings.Replacer) ([]float64, error) {
	var list []*float64
	var object struct {
		Scores []*float64 `json:"scores"`
	}
	if json.Unmarshal(said, &list) != nil {
		if json.Unmarshal(said, &object) != nil || object.Scores == nil {
			return nil, permanent{fmt.Errorf(`answer %s: want {"scores": [numbers]}`, clipText(secrets.Replace(string(said))))}
		}
		list = object.Scores
	}
	out := make([]float64, len(list))
	for i, v := range list {
		if v == nil {
			return nil, permanent{fmt.Errorf("score %d is null: want a number", i)}
		}
		out[i] = *v
	}
	return out, nil
}
