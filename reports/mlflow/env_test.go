package mlflow

import (
	"strings"
	"testing"
)

func TestMLflowFromEnv(t *testing.T) {
	for _, tc := range []struct {
		name  string
		env   map[string]string
		want  Server
		asked bool
		err   string
	}{
		{"unset", nil, Server{}, false, ""},
		{"a server", map[string]string{"MLFLOW_TRACKING_URI": "http://host:5000/prefix/", "MLFLOW_TRACKING_TOKEN": "t"},
			Server{URI: "http://host:5000/prefix", Token: "t"}, true, ""},
		{"a user in the address", map[string]string{"MLFLOW_TRACKING_URI": "https://me:pw@host"},
			Server{URI: "https://host", User: "me", Password: "pw"}, true, ""},
		{"a user in variables", map[string]string{"MLFLOW_TRACKING_URI": "https://me:pw@host", "MLFLOW_TRACKING_USERNAME": "you",
			"MLFLOW_TRACKING_PASSWORD": "x"}, Server{URI: "https://host", User: "you", Password: "x"}, true, ""},
		{"a folder", map[string]string{"MLFLOW_TRACKING_URI": "./mlruns"}, Server{}, true,
			"MLFLOW_TRACKING_URI=./mlruns: want the http:// or https:// address"},
		{"a file URI", map[string]string{"MLFLOW_TRACKING_URI": "file:///tmp/mlruns"}, Server{}, true,
			"MLFLOW_TRACKING_URI=file:///tmp/mlruns: want"},
		{"a database, with its password", map[string]string{"MLFLOW_TRACKING_URI": "postgresql://me:pw@host/db"}, Server{}, true,
			"MLFLOW_TRACKING_URI=postgresql://***@host/db: want"},
		{"a password that is no address", map[string]string{"MLFLOW_TRACKING_URI": "http://me:p/w@host"}, Server{}, true,
			"MLFLOW_TRACKING_URI=http://***@host: want"},
		{"a token in the query", map[string]string{"MLFLOW_TRACKING_URI": "http://host/?token=pw"}, Server{}, true,
			"MLFLOW_TRACKING_URI=http://host/?token=***: want an address without a query (a token goes into MLFLOW_TRACKING_TOKEN)"},
		{"databricks", map[string]string{"MLFLOW_TRACKING_URI": "databricks"}, Server{}, true, "MLFLOW_TRACKING_URI=databricks: want"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			opt, asked, err := FromEnv(func(name string) string { return tc.env[name] })
			message := ""
			if err != nil {
				message = err.Error()
			}
			if asked != tc.asked || !strings.HasPrefix(message, tc.err) || tc.err == "" && message != "" {
				t.Errorf("asked %v, error %q; want %v, %q", asked, message, tc.asked, tc.err)
			}
			if got := opt.Server; err == nil && asked && got != tc.want {
				t.Errorf("server %+v, want %+v", got, tc.want)
			}
		})
	}
}
