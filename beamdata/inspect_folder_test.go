package beamdata

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A folder's files are told by their content; what nothing reads is counted and named.
func TestInspectFolder(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"train.json": tenLegacy, "chat.jsonl": `{"conversations": [{"from": "human", "value": "q"},
		{"from": "gpt", "value": "a"}]}`, "sum.json": `[{"document": "d", "summary": "s"}]`, "notes.json": `{"a": 1}`, "x.txt": "x",
		"cut.jsonl": `{"id": `, "ask.jsonl": `{"id": 1, "question": "q", "answers": ["a"]}`, "beams_bad.json": "[]"} {
		write(t, filepath.Join(dir, name), text)
	}
	if err := os.Mkdir(filepath.Join(dir, "pictures"), 0o755); err != nil {
		t.Fatal(err)
	}
	in, err := Inspect(dir, 0, testOptions())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range in.Files {
		got = append(got, filepath.Base(f.Path)+": "+f.Format)
	}
	const want = "ask.jsonl: records of in-context learning; chat.jsonl: conversations; " +
		"beams_bad.json: ; sum.json: texts; train.json: beams (legacy)"
	if files := strings.Join(got, "; "); files != want {
		t.Errorf("files %s\nwant %s", files, want)
	}
	if facts := fmt.Sprint(in.Facts); facts != "[{not recognised 3: cut.jsonl, x.txt, notes.json} {folders, not looked into 1: pictures}]" {
		t.Errorf("facts %s", facts)
	}
}
