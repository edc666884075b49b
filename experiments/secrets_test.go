package experiments_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// holding returns the files under dir, and the streams of r, that hold any of the texts.
func holding(t *testing.T, dir string, r result, texts ...string) []string {
	t.Helper()
	found, files := []string{}, 0
	look := func(name, text string) {
		if slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(text, s) }) {
			found = append(found, name)
		}
	}
	look("stdout", r.Stdout)
	look("stderr", r.Stderr)
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			look(path, read(t, path))
			files++
		}
		return nil
	})
	if files < 4 {
		t.Errorf("saw %d files in %s", files, dir)
	}
	return found
}

// A secret that stands in a configuration is refused before anything is written, and not repeated.
func TestSecretsAreRefused(t *testing.T) {
	t.Parallel()
	const pw = "hunter2SECRET"
	file := filepath.Join(t.TempDir(), "mine.yaml")
	write(t, file, "defaults: [okvqa_v3, _self_]\nrewards: {external: {headers: {X-Api-Key: "+pw+"}}}\n")
	for _, tc := range []struct {
		args []string
		want []string
	}{
		{[]string{"rewards.external.url=http://me:" + pw + "@127.0.0.1:1/score"},
			[]string{"rewards.external.url", "a user or password", "${oc.env:NAME}"}},
		{[]string{"rewards.external.url='https://127.0.0.1:1/score?n=1&api_key=" + pw + "'"},
			[]string{"rewards.external.url", "a secret (api_key)"}},
		{[]string{"rewards.external.url='https://127.0.0.1:1/score?token=" + pw + "'", "rewards.external.url=null"},
			[]string{"rewards.external.url", "a secret (token)"}},
		{[]string{"exp=shapes_vl", "+rewards.external.headers.Authorization=Bearer " + pw},
			[]string{"rewards.external.headers.Authorization", "${oc.env:NAME}"}},
		{[]string{"exp=shapes_vl", "rewards.external.command=[sh,judge.sh,--api-key," + pw + "]"},
			[]string{"rewards.external.command", "--api-key", "inherits the environment"}},
		{[]string{"+hydra.job.env_set.OPENAI_API_KEY=" + pw}, []string{"hydra.job.env_set.OPENAI_API_KEY"}},
		{[]string{"data=beams", "data.embeddings=e.npy", "data.beams=https://me:" + pw + "@host/beams.json"},
			[]string{"data.beams", "a user or password"}},
	} {
		for _, multirun := range []bool{false, true} {
			dir := folder(t)
			args := append(slices.Clone(tc.args), "hydra.run.dir="+dir, "hydra.sweep.dir="+dir)
			if !strings.HasPrefix(args[0], "exp=") {
				args = tiny(args...)
			}
			if multirun {
				args = append([]string{"-m"}, append(args, "seed=0,1")...)
			}
			r := run(t, args...)
			refused(t, r, 2, tc.want...)
			if strings.Contains(r.Stdout+r.Stderr, pw) || exists(dir) {
				t.Errorf("%v: the secret is repeated, or %s is left: %s", tc.args, dir, r.Stderr)
			}
		}
	}
	dir := folder(t)
	r := run(t, "-cd", filepath.Dir(file), "exp=okvqa_v3", "+mine@_global_=x", "hydra.run.dir="+dir)
	if strings.Contains(r.Stderr, pw) {
		t.Errorf("%s", r.Stderr)
	}
	// An address in a message of another kind.
	r = run(t, tiny("rce.lr=http://me:"+pw+"@host", "hydra.run.dir="+dir)...)
	if r.Code != 2 || strings.Contains(r.Stderr, pw) || !strings.Contains(r.Stderr, "***@host") {
		t.Errorf("exit code %d: %s", r.Code, r.Stderr)
	}
}

// A secret from the environment reaches the scorer and nothing else, whether the run succeeds or fails.
func TestSecretsStayInTheEnvironment(t *testing.T) {
	t.Parallel()
	const key, pw, query = "keySECRET1", "pwSECRET2", "querySECRET3"
	var fail, asked, bare atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if user, password, _ := r.BasicAuth(); r.Header.Get("X-Api-Key") != key || user != "me" || password != pw ||
			r.URL.Query().Get("token") != query {
			bare.Add(1)
		}
		if left := fail.Add(-1); left == 0 { // with what it was told
			http.Error(w, fmt.Sprint("refused ", r.Header, r.URL), http.StatusForbidden)
			return
		}
		var body struct{ Items []json.RawMessage }
		json.NewDecoder(r.Body).Decode(&body)
		json.NewEncoder(w).Encode(make([]float64, len(body.Items)))
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	env := []string{"JUDGE_KEY=" + key, "JUDGE_PW=" + pw, "JUDGE_TOKEN=" + query}
	args := tinySummaries("t5", "schedule=[grpo]", "grpo.epochs=1", "data.summaries.train=8", "report.plots=false",
		"rewards.external.weight=0.5",
		"rewards.external.url='http://me:${oc.env:JUDGE_PW}@"+host+"/score?token=${oc.env:JUDGE_TOKEN}'",
		`+rewards.external.headers={X-Api-Key: '${oc.env:JUDGE_KEY}'}`,
		`+hydra.job.env_set={OTHER_KEY: '${oc.env:JUDGE_KEY}'}`)
	for _, code := range []int{0, 1} {
		fail.Store(int32(code) * (asked.Load() - 1)) // the last request but one, if any
		dir := folder(t)
		r := startWith(t, "", env, append(args, "hydra.run.dir="+dir)...).Wait()
		if r.Code != code || code == 1 && !strings.Contains(r.Stderr, "403") {
			t.Errorf("exit code %d, want %d: %s", r.Code, code, r.Stderr)
		}
		if files := holding(t, dir, r, key, pw, query); len(files) > 0 {
			t.Errorf("a secret stands in %v", files)
		}
		if text := read(t, filepath.Join(dir, ".hydra/config.yaml")); !strings.Contains(text, "${oc.env:JUDGE_KEY}") {
			t.Errorf("the configuration has lost the name of the variable:\n%s", text)
		}
	}
	if asked.Load() == 0 || bare.Load() > 0 {
		t.Errorf("%d requests, %d of them without the secrets", asked.Load(), bare.Load())
	}
	if testing.Short() {
		return
	}
	dir := folder(t)
	r := startWith(t, "", env, append(append([]string{"-m"}, args...), "seed=0,1", "hydra.sweep.dir="+dir,
		"hydra/launcher=local")...).Wait()
	if r.Code != 0 {
		t.Errorf("sweep: exit code %d: %s", r.Code, r.Stderr)
	}
	if files := holding(t, dir, r, key, pw, query); len(files) > 0 {
		t.Errorf("a secret stands in %v", files)
	}
	os.RemoveAll(dir)
}
