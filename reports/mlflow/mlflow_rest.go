package mlflow

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"fulcrum/internal/jsonwords"
	"fulcrum/internal/secret"
	"fulcrum/internal/webapi"
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
			ArtifactURI string `json:"artifact_uri"`
			Stage       string `json:"lifecycle_stage"`
		} `json:"info"`
	} `json:"run"`
}

// restClient speaks the REST API 2.0.
type restClient struct {
	uri  string
	http *webapi.Client
	err  error // the address is none
}

func newRest(s Server) *restClient {
	headers := map[string]string{}
	switch {
	case s.User != "" && s.Password != "":
		headers["Authorization"] = "Basic " + base64.StdEncoding.EncodeToString([]byte(s.User+":"+s.Password))
	case s.Token != "":
		headers["Authorization"] = "Bearer " + s.Token
	}
	client, err := webapi.New(s.URI, headers, 1)
	return &restClient{s.URI, client, err}
}

func (c *restClient) post(ctx context.Context, call string, body, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return c.do(ctx, http.MethodPost, "/api/2.0/mlflow/"+call, text, answer)
}

func (c *restClient) get(ctx context.Context, call string, query url.Values, answer any) error {
	return c.do(ctx, http.MethodGet, "/api/2.0/mlflow/"+call+"?"+query.Encode(), nil, answer)
}

// do makes a request and reads its answer. An error of the server's is an *serverError.
func (c *restClient) do(ctx context.Context, method, path string, body []byte, answer any) error {
	if c.err != nil {
		return c.err
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	text, err := c.http.Do(ctx, method, path, body)
	if status, ok := errors.AsType[*webapi.StatusError](err); ok {
		refused := &serverError{URI: c.uri, Status: status.Code, after: status.Wait}
		var said struct {
			Code    string `json:"error_code"`
			Message string `json:"message"`
		}
		if json.Unmarshal(status.Said, &said) == nil {
			refused.Code, refused.Message = said.Code, strings.Join(strings.Fields(said.Message), " ")
		}
		return refused
	}
	if away, ok := errors.AsType[*secret.RedirectError](err); ok {
		return &serverError{URI: c.uri, Status: http.StatusPermanentRedirect, Message: away.Error()}
	}
	if err != nil {
		return fmt.Errorf("%s does not answer: %w", c.uri, err)
	}
	if answer == nil {
		return nil
	}
	if err := jsonwords.Unmarshal(text, answer); err != nil {
		return &serverError{URI: c.uri, Status: http.StatusOK, Message: "the answer is not JSON: is this an MLflow server?"}
	}
	return nil
}
