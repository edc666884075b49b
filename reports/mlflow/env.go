package mlflow

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"

	"fulcrum/internal/secret"
	"fulcrum/reports/tracker"
)

// Open copies the rows of a run to the server that MLFLOW_TRACKING_URI names.
func Open(run tracker.Run) (tracker.Sink, error) {
	opt, asked, err := FromEnv(os.Getenv)
	if !asked {
		return nil, nil
	}
	if err == nil {
		opt.Settings, err = run.Params()
	}
	if err != nil {
		return nil, err
	}
	opt.Run = run
	opt.Tags = map[string]string{
		"mlflow.source.name": run.Command, "mlflow.source.type": "LOCAL", "mlflow.user": os.Getenv("USER"),
		"mlflow.source.git.commit": run.Versions["commit"], "fulcrum.version": run.Versions["fulcrum"],
		"fulcrum.dir": run.Dir, "fulcrum.config_hash": run.Hash,
	}
	if run.Sweep != "" {
		opt.Tags["fulcrum.sweep"], opt.Tags["fulcrum.job"] = run.Sweep, strconv.Itoa(run.Job)
		if opt.RunName != "" { // the variables name all its jobs alike
			opt.RunName = fmt.Sprintf("%s/%d", opt.RunName, run.Job)
		}
		opt.Tags["mlflow.parentRunId"], opt.RunID = opt.RunID, ""
	}
	opt.RunName = cmp.Or(opt.RunName, run.Name)
	return Start(opt), nil
}

// FromEnv reads the variables that MLflow's own clients read. asked says whether MLFLOW_TRACKING_URI is
// set; an error says why its server cannot be logged to.
func FromEnv(getenv func(string) string) (opt Options, asked bool, err error) {
	uri := getenv("MLFLOW_TRACKING_URI")
	if uri == "" {
		return opt, false, nil
	}
	opt = Options{
		Experiment: cmp.Or(getenv("MLFLOW_EXPERIMENT_NAME"), "fulcrum"), ExperimentID: getenv("MLFLOW_EXPERIMENT_ID"),
		RunID: getenv("MLFLOW_RUN_ID"), RunName: getenv("MLFLOW_RUN_NAME"),
		Server: Server{Token: getenv("MLFLOW_TRACKING_TOKEN"), User: getenv("MLFLOW_TRACKING_USERNAME"),
			Password: getenv("MLFLOW_TRACKING_PASSWORD")},
	}
	u, err := url.Parse(uri)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return opt, true, fmt.Errorf("MLFLOW_TRACKING_URI=%s: want the http:// or https:// address of a tracking server (mlflow server "+
			"--port 5000); "+
			"this run is not logged to MLflow", secret.Mask(uri))
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return opt, true, fmt.Errorf("MLFLOW_TRACKING_URI=%s: want an address without a query (a token goes into MLFLOW_TRACKING_TOKEN); "+
			"this run is not logged to MLflow", secret.Mask(uri))
	}
	if u.User != nil {
		if opt.Server.User == "" {
			opt.Server.User = u.User.Username()
			opt.Server.Password, _ = u.User.Password()
		}
		u.User = nil
	}
	opt.Server.URI = strings.TrimRight(u.String(), "/")
	return opt, true, nil
}
