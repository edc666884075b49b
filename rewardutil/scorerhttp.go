package rewardutil

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// maxReply bounds a scorer's answer, in bytes.
const maxReply = 64 << 20

// httpTransport posts batches to an address.
type httpTransport struct {
	url     string
	headers map[string]string
	client  *http.Client
}

func newHTTPTransport(opt ScorerOptions) *httpTransport {
	pool := http.DefaultTransport.(*http.Transport).Clone()
	pool.MaxIdleConnsPerHost = opt.Parallel
	return &httpTransport{url: *opt.URL, headers: opt.Headers, client: &http.Client{Transport: pool}}
}

func (t *httpTransport) name() string { return t.url }

func (t *httpTransport) Close() error {
	t.client.CloseIdleConnections()
	return nil
}

func (t *httpTransport) score(ctx context.Context, items [][]byte) ([]float64, error) {
	body := append([]byte(`{"items":[`), bytes.Join(items, []byte(","))...)
	body = append(body, "]}"...)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(body))
	if err != nil {
		return nil, permanent{err}
	}
	req.Header.Set("Content-Type", "application/json")
	for k, v := range t.headers {
		req.Header.Set(k, v)
	}
	reply, err := t.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer reply.Body.Close()
	said, err := io.ReadAll(io.LimitReader(reply.Body, maxReply))
	if err != nil {
		return nil, err
	}
	if code := reply.StatusCode; code < 200 || code > 299 {
		err := fmt.Errorf("status %s: %s", reply.Status, clipText(string(said)))
		if code == http.StatusRequestTimeout || code == http.StatusTooManyRequests || code >= 500 {
			return nil, err
		}
		return nil, permanent{err}
	}
	return parseReply(said)
}

// parseReply reads {"scores": [numbers]} or the list alone.
func parseReply(said []byte) ([]float64, error) {
	var list []*float64
	var object struct {
		Scores []*float64 `json:"scores"`
	}
	if json.Unmarshal(said, &list) != nil {
		if json.Unmarshal(said, &object) != nil || object.Scores == nil {
			return nil, permanent{fmt.Errorf(`answer %s: want {"scores": [numbers]}`, clipText(string(said)))}
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
