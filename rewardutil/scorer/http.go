package scorer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"fulcrum/internal/webapi"
)

type httpTransport struct{ client *webapi.Client }

func (t *httpTransport) Name() string { return t.client.Address() }

func (t *httpTransport) Close() error { return t.client.Close() }

func (t *httpTransport) Ask(ctx context.Context, items [][]byte) ([]float64, error) {
	body := append([]byte(`{"items":[`), bytes.Join(items, []byte(","))...)
	said, err := t.client.Do(ctx, http.MethodPost, "", append(body, "]}"...))
	if err != nil {
		return nil, err
	}
	return t.parseReply(said)
}

// parseReply reads {"scores": [numbers]} or the list alone. Errors hide secrets.
func (t *httpTransport) parseReply(said []byte) ([]float64, error) {
	if err := t.client.Whole(said); err != nil {
		return nil, err
	}
	var list []*float64
	var object struct {
		Scores []*float64 `json:"scores"`
	}
	if json.Unmarshal(said, &list) != nil {
		if json.Unmarshal(said, &object) != nil || object.Scores == nil {
			return nil, webapi.Permanent{Err: fmt.Errorf(`answer %s: want {"scores": [numbers]}`, t.client.Quote(said))}
		}
		list = object.Scores
	}
	out := make([]float64, len(list))
	for i, v := range list {
		if v == nil {
			return nil, webapi.Permanent{Err: fmt.Errorf("score %d is null: want a number", i)}
		}
		out[i] = *v
	}
	return out, nil
}
