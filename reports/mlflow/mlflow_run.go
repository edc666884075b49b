package mlflow

import (
	"context"
	"errors"
	"fmt"
	"fulcrum/internal/atomicfile"
	"fulcrum/reports/record"
	"net/url"
	"path/filepath"
	"time"
)

// begin finds or makes the MLflow run.
func (m *Client) begin(ctx context.Context) error {
	id := m.opt.RunID
	if m.opt.Resumed {
		var kept keptRun
		if err := record.ReadJSON(filepath.Join(m.opt.Dir, keptFile), &kept); err == nil && kept.TrackingURI == m.opt.Server.URI &&
			kept.RunID != "" {
			m.kept.Params, m.kept.Sent, m.before, id = kept.Params, kept.Sent, kept.Sent, kept.RunID
		}
	}
	if id != "" {
		found, err := m.reopen(ctx, id)
		if found || err != nil {
			return err
		}
		m.kept.Params, m.kept.Sent, m.before = false, 0, 0
	}
	experiment, err := m.experiment(ctx)
	if err != nil {
		return err
	}
	body := map[string]any{"experiment_id": experiment, "start_time": time.Now().UnixMilli(), "run_name": m.opt.RunName,
		"tags": pairsOf(m.opt.Tags, maxTagLength)}
	var made serverRun
	if err := m.rest.post(ctx, "runs/create", body, &made); err != nil {
		return err
	}
	return m.use(made)
}

// use keeps the id of the MLflow run.
func (m *Client) use(run serverRun) error {
	info := run.Run.Info
	m.kept.TrackingURI, m.kept.RunID, m.kept.artifacts = m.opt.Server.URI, info.RunID, info.ArtifactURI
	if m.kept.RunID == "" {
		return &serverError{Status: 200, Message: "the server's answer to runs/create has no run_id: is this an MLflow server?"}
	}
	return m.keep()
}

func (m *Client) keep() error {
	return atomicfile.WriteJSON(filepath.Join(m.opt.Dir, keptFile), m.kept)
}

// reopen goes on in an MLflow run, and reports false when the server does not have it any more.
func (m *Client) reopen(ctx context.Context, id string) (bool, error) {
	var run serverRun
	err := m.rest.get(ctx, "runs/get", url.Values{"run_id": {id}}, &run)
	if refused, ok := errors.AsType[*serverError](err); ok && refused.Code == "RESOURCE_DOES_NOT_EXIST" || err == nil &&
		run.Run.Info.Stage == "deleted" {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := m.rest.post(ctx, "runs/update", map[string]any{"run_id": id, "status": "RUNNING"}, nil); err != nil {
		return false, err
	}
	return true, m.use(run)
}

// experiment returns the experiment's id, making the experiment where there is none.
func (m *Client) experiment(ctx context.Context) (string, error) {
	if m.opt.ExperimentID != "" {
		return m.opt.ExperimentID, nil
	}
	id, err := m.experimentByName(ctx)
	var refused *serverError
	if !errors.As(err, &refused) || refused.Code != "RESOURCE_DOES_NOT_EXIST" {
		return id, err
	}
	var made struct {
		ID string `json:"experiment_id"`
	}
	err = m.rest.post(ctx, "experiments/create", map[string]any{"name": m.opt.Experiment}, &made)
	if errors.As(err, &refused) && refused.Code == "RESOURCE_ALREADY_EXISTS" { // another job of the sweep was faster
		return m.experimentByName(ctx)
	}
	return made.ID, err
}

func (m *Client) experimentByName(ctx context.Context) (string, error) {
	var found struct {
		Experiment struct {
			ID    string `json:"experiment_id"`
			Stage string `json:"lifecycle_stage"`
		} `json:"experiment"`
	}
	err := m.rest.get(ctx, "experiments/get-by-name", url.Values{"experiment_name": {m.opt.Experiment}}, &found)
	if err == nil && found.Experiment.Stage == "deleted" {
		err = &serverError{Status: 400, Message: fmt.Sprintf("the experiment %q is deleted: restore it or set MLFLOW_EXPERIMENT_NAME",
			m.opt.Experiment)}
	}
	return found.Experiment.ID, err
}
