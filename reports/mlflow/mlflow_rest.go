package mlflow

import (
	"bytes"
	"context"
	"encoding/json"
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

// Server is a tracking server and who logs to it. User and password win over a token, as in MLflow.
type Server struct {
	URI      string // http(s)://host[:port][/prefix], without a slash at its end
	Token    string
	User     string
	Password string
}

// serverError is a request that the server answered with an error.
type serverError struct {
	URI     string
	Status  int    // of HTTP
	Code    string // of MLflow: RESOURCE_DOES_NOT_EXIST, …
	Message string
	after   time.Duration // Retry-After
}

func (e *serverError) Error() string {
	text := fmt.Sprintf("%s answers %d", e.URI, e.Status)
	if e.Code != "" {
		text += " " + e.Code
	}
	switch {
	case e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden:
		text += ": set MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
	case e.Message != "":
		text += ": " + cutBytes(e.Message, 300)
	}
	return text
}

// temporary reports whether the same request may succeed later.
func (e *serverError) temporary() bool {
	return e.Status == http.StatusRequestTimeout || e.Status == http.StatusTooManyRequests || e.Status >= 500
}

// serverRun is the part of a run that its logging needs.
type serverRun struct {
	Run struct {
		Info struct {
			RunID       string `json:"run_id"`
			RunUUID     string `json:"run_uuid"` // of servers before 1.0
			ArtifactURI string `json:"artifact_uri"`
			Stage       string `json:"lifecycle_stage"`
		} `json:"info"`
	} `json:"run"`
}

// restClient speaks the REST API 2.0.
type restClient struct {
	server Server
	http   *http.Client
}

func (c *restClient) post(ctx context.Context, call string, body, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return c.do(ctx, http.MethodPost, "/api/2.0/mlflow/"+call, "application/json", text, answer)
}

func (c *restClient) get(ctx context.Context, call string, query url.Values, answer any) error {
	return c.do(ctx, http.MethodGet, "/api/2.0/mlflow/"+call+"?"+query.Encode(), "", nil, answer)
}

// put uploads a file through the server's artifact proxy.
func (c *restClient) put(ctx context.Context, path string, data []byte) error {
	escaped := (&url.URL{Path: path}).EscapedPath()
	return c.do(ctx, http.MethodPut, "/api/2.0/mlflow-artifacts/artifacts/"+escaped, "application/octet-stream", data, nil)
}

// do makes a request and reads its answer. An error of the server's is an *serverError.
func (c *restClient) do(ctx context.Context, method, path, kind string, body []byte, answer any) error {
	req, err := http.NewRequestWithContext(ctx, method, c.server.URI+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	switch s := c.server; {
	case s.User != "" && s.Password != "":
		req.SetBasicAuth(s.User, s.Password)
	case s.Token != "":
		req.Header.Set("Authorization", "Bearer "+s.Token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var away *secret.RedirectError
		if errors.As(err, &away) {
			return &serverError{URI: c.server.URI, Status: http.StatusPermanentRedirect, Message: away.Error()}
		}
		return fmt.Errorf("%s does not answer: %w", c.server.URI, secret.Cause(err))
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("%s does not answer: %w", c.server.URI, err)
	}
	if resp.StatusCode/100 != 2 {
		refused := &serverError{URI: c.server.URI, Status: resp.StatusCode}
		var said struct {
			Code    string `json:"error_code"`
			Message string `json:"message"`
		}
		if json.Unmarshal(text, &said) == nil {
			refused.Code, refused.Message = said.Code, strings.Join(strings.Fields(said.Message), " ")
		}
		if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
			refused.after = time.Duration(seconds) * time.Second
		}
		return refused
	}
	if answer == nil {
		return nil
	}
	if err := jsonwords.Unmarshal(text, answer); err != nil {
		return &serverError{URI: c.server.URI, Status: resp.StatusCode, Message: "the answer is not JSON: is this an MLflow server?"}
	}
	return nil
}
