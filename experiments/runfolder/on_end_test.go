package runfolder

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"fulcrum/internal/testkit/golden"
)

// The command and the webhook get the summary; what goes wrong with them is a warning without their address.
func TestTell(t *testing.T) {
	got := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		got = r.Method + " " + r.Header.Get("Content-Type") + " " + string(data)
		if strings.HasSuffix(r.URL.Path, "secret") {
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "told")
	var warnings []string
	warn := func(w string) { warnings = append(warnings, w) }
	tell := func(command, webhook string) {
		got, warnings = "", nil
		OnEnd{Command: &command, Webhook: &webhook}.Tell("DIR", "done", map[string]int{"a": 1}, warn)
	}
	tell(`printf '%s %s ' "$FULCRUM_FOLDER" "$FULCRUM_STATE" >`+file+`; cat >>`+file, server.URL+"/x")
	text, err := os.ReadFile(file)
	if err != nil || string(text) != `DIR done {"a":1}` || got != `POST application/json {"a":1}` || len(warnings) > 0 {
		t.Errorf("command %q (%v), webhook %q, warnings %v", text, err, got, warnings)
	}
	tell("exit 3", server.URL+"/secret")
	if said := strings.Join(warnings, "; "); !strings.Contains(said, "on_end.command: it ended with exit code 3") ||
		!strings.Contains(said, "answers 418") || strings.Contains(said, "secret") {
		t.Errorf("warnings: %s", said)
	}
	t.Setenv(ExpectedHash, "x") // a job of a sweep
	if tell("exit 3", server.URL); got != "" || len(warnings) > 0 {
		t.Errorf("a sweep's job told %q, %v", got, warnings)
	}
	for address, fine := range map[string]bool{"https://h/p": true, "h/p": false, "file:///x": false, "http://": false} {
		if err := (OnEnd{Webhook: &address}).Validate(); (err == nil) != fine {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// Commands of hydra.callbacks run in their order, in a job of a sweep too; what goes wrong names its event.
func TestCallbacks(t *testing.T) {
	t.Setenv(ExpectedHash, "x")
	file, warnings := filepath.Join(t.TempDir(), "told"), ""
	write := `printf '%s ' "$FULCRUM_FOLDER" "$FULCRUM_STATE" >>` + file + "; cat >>" + file
	Callbacks("on_job_end", []string{"echo first >" + file, "exit 3", write}, "DIR", "failed", map[string]int{"a": 1},
		func(w string) { warnings += w })
	if text, err := os.ReadFile(file); err != nil || string(text) != "first\nDIR failed {\"a\":1}" ||
		warnings != "hydra.callbacks: on_job_end: it ended with exit code 3" {
		t.Errorf("told %q, warned %q", text, warnings)
	}
}

// Whoever does not answer is left, and a command that hangs is killed with what it has started.
func TestTellDoesNotWait(t *testing.T) {
	gone := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-gone }))
	defer server.Close()
	defer close(gone)
	host := strings.TrimPrefix(server.URL, "http://")
	if err := post(server.URL+"/secret", nil, 50*time.Millisecond); err == nil || err.Error() != host+" did not answer within 50ms" {
		t.Errorf("a receiver that never answers: %v", err)
	}
	if err := post("http://127.0.0.1:1/secret", nil, time.Second); err == nil || strings.Contains(err.Error(), "secret") ||
		!strings.HasPrefix(err.Error(), "127.0.0.1:1: ") {
		t.Errorf("no receiver: %v", err)
	}
	file := filepath.Join(t.TempDir(), "pid")
	var text []byte
	for limit := 500 * time.Millisecond; len(text) == 0; limit *= 2 { // until the shell was faster
		err := runCommand("on_end.command", "sleep 1000 & echo $! >"+file+"; wait", "DIR", "done", nil, limit)
		if err == nil || err.Error() != fmt.Sprintf("it had not ended after %v and was killed", limit) {
			t.Fatalf("a command that hangs: %v", err)
		}
		text, _ = os.ReadFile(file)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	golden.Ended(t, pid) // what the command has started
}
