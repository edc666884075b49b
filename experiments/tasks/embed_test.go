//go:build !core

package tasks_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fulcrum/beamdata"
	"fulcrum/internal/tensorfile"
	"fulcrum/internal/testkit/golden"
)

// embedRecords writes n records about the four pictures of the CLIP fixtures, each with a question of its own but for the last.
func embedRecords(t *testing.T, n int) string {
	t.Helper()
	var lines strings.Builder
	for i := range n {
		picture := []string{"tall", "wide", "small", "exact"}[i%4]
		path, err := filepath.Abs(filepath.Join("../../selector/clip/testdata/pictures", picture+".png"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&lines, `{"id": %d, "image": %q, "question": "what is number %d?", "answers": ["a"]}`+"\n", 100+i, path, min(i, n-2))
	}
	file := filepath.Join(folder(t), "records.jsonl")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, file, lines.String())
	return file
}

func embedArgs(records, out string, more ...string) []string {
	return append([]string{"task=embed", "embed.in=" + records, "embed.out=" + out, "encoder.path=../../selector/clip/testdata/quick",
		"hydra.run.dir=" + filepath.Dir(out) + "/run"}, more...)
}

// task=embed writes the table by the ending of its name, row i of record i, as transformers has them (selector/clip/testdata).
func TestEmbed(t *testing.T) {
	t.Parallel()
	records := embedRecords(t, 9)
	var want struct{ Image [][]float64 }
	golden.JSON(t, "../../selector/clip/testdata/quick.json", &want)
	for _, ending := range []string{".safetensors", ".npy", ".pt"} {
		out := filepath.Join(folder(t), "e"+ending)
		r := mustRun(t, embedArgs(records, out)...)
		if !strings.Contains(r.Stdout, "embeddings: 9 records, 12 numbers each") {
			t.Errorf("stdout: %s", r.Stdout)
		}
		table, err := beamdata.OpenTable(out)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 9 {
			for k, v := range table.Row(i) {
				if d := float64(v) - want.Image[i%4][k]; d > 1e-5 || d < -1e-5 {
					t.Fatalf("%s: row %d differs by %g", ending, i, d)
				}
			}
		}
		if again := mustRun(t, embedArgs(records, out)...); !strings.Contains(again.Stdout, "is there already, by the same encoder") {
			t.Errorf("a second time: %s", again.Stdout)
		}
		if other := mustRun(t, embedArgs(records, out, "encoder.batch=3")...); strings.Contains(other.Stdout, "already") {
			t.Errorf("in other batches: %s", other.Stdout)
		}
		if err := tensorfile.WriteNPY(out, tensorfile.FromFloat32s("", []int{9, 12}, make([]float32, 9*12))); err != nil {
			t.Fatal(err)
		}
		if other := mustRun(t, embedArgs(records, out, "encoder.batch=3")...); strings.Contains(other.Stdout, "already") {
			t.Errorf("a table of another program: %s", other.Stdout)
		}
	}
	pictures := t.TempDir() // other pictures under the same names, as large, are other embeddings
	write(t, filepath.Join(pictures, "r.jsonl"), `{"id": 1, "image": "a.png", "question": "what?"}`)
	for _, name := range []string{"tall", "wide"} {
		picture, err := os.ReadFile("../../selector/clip/testdata/pictures/" + name + ".png")
		if err != nil {
			t.Fatal(err)
		}
		const size = 1 << 16 // bytes; what follows a picture's end is none of it
		write(t, filepath.Join(pictures, "a.png"), string(append(picture, make([]byte, size-len(picture))...)))
		r := mustRun(t, embedArgs(filepath.Join(pictures, "r.jsonl"), filepath.Join(pictures, "e.npy"))...)
		if strings.Contains(r.Stdout, "already") {
			t.Errorf("a picture is %s now: %s", name, r.Stdout)
		}
	}
	both := filepath.Join(folder(t), "e.npy")
	mustRun(t, embedArgs(records, both, "embed.modality=both", "encoder.dtype=bfloat16")...)
	table, err := beamdata.OpenTable(both)
	if err != nil || table.Rows != 9 || table.Dim != 24 {
		t.Fatalf("both: %v", err)
	}
	if !slices.Equal(table.Row(7)[12:], table.Row(8)[12:]) || slices.Equal(table.Row(6)[12:], table.Row(7)[12:]) ||
		!slices.Equal(table.Row(3)[:12], table.Row(7)[:12]) {
		t.Error("records with one picture or one question differ there, or those with two do not")
	}
}

// A language model's folder encodes questions, and says so where pictures are wanted.
func TestEmbedByLanguageModel(t *testing.T) {
	t.Parallel()
	records := embedRecords(t, 9)
	args := func(out string, more ...string) []string {
		folder := filepath.Dir(golden.Shared(t, "qwen2_5_vl", "tiny_tied", "config.json"))
		return embedArgs(records, out, append(more, "encoder.path="+folder, "encoder.batch=4")...)
	}
	out := filepath.Join(folder(t), "e.npy")
	if r := mustRun(t, args(out, "embed.modality=text")...); !strings.Contains(r.Stdout, "9 records") {
		t.Errorf("stdout: %s", r.Stdout)
	}
	table, err := beamdata.OpenTable(out)
	if err != nil || table.Rows != 9 {
		t.Fatalf("%v", err)
	}
	length := 0.0
	for _, v := range table.Row(4) {
		length += float64(v) * float64(v)
	}
	if length < 0.999 || length > 1.001 || !slices.Equal(table.Row(7), table.Row(8)) || slices.Equal(table.Row(6), table.Row(7)) {
		t.Errorf("squared length %v, want 1; equal questions have equal rows, others have not", length)
	}
	if again := mustRun(t, args(out, "embed.modality=text")...); !strings.Contains(again.Stdout, "already") {
		t.Errorf("a second time: %s", again.Stdout)
	}
	if r := run(t, args(out, "embed.modality=both")...); r.Code != 2 || !strings.Contains(r.Stderr,
		"embed.modality=both: encoder.path=") || !strings.Contains(r.Stderr, "want embed.modality=text") {
		t.Errorf("code %d: %s", r.Code, r.Stderr)
	}
}

// partOf returns the files that a table grows in, with their sizes.
func partOf(out string) map[string]int64 {
	found := map[string]int64{}
	entries, _ := os.ReadDir(out + ".part")
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			found[filepath.Join(out+".part", e.Name())] = info.Size()
		}
	}
	return found
}

func sum(sizes map[string]int64) (n int64) {
	for _, size := range sizes {
		n += size
	}
	return n
}

// A task that is killed again and again ends with the bytes of one that was not, and keeps what was done.
func TestEmbedKilled(t *testing.T) {
	t.Parallel()
	records := embedRecords(t, 500)
	args := func(out string) []string { return embedArgs(records, out, "embed.modality=both", "encoder.batch=1") }
	whole := filepath.Join(folder(t), "e.npy")
	mustRun(t, args(whole)...)
	out := filepath.Join(folder(t), "e.npy")
	const frame, kills = 12 + 32 + 4*12, 6 // bytes of a vector
	killed, kept := 0, int64(0)
	for i := range kills {
		p := start(t, args(out)...)
		for at := int64((i + 1) * 500 / (kills + 1) * frame); ; time.Sleep(time.Millisecond) {
			if n := sum(partOf(out)); n > at {
				if n < kept {
					t.Errorf("kill %d: %d bytes were kept, %d are there", i, kept, n)
				}
				break
			}
			if _, err := os.Stat(out); err == nil {
				break
			}
		}
		p.Cmd.Process.Kill()
		<-p.Ended
		if left := partOf(out); len(left) > 0 {
			killed, kept = killed+1, sum(left)
			if i == 2 { // a vector torn by a power cut
				for path, size := range left {
					if err := os.Truncate(path, size-5); err != nil {
						t.Fatal(err)
					}
				}
				kept = 0
			}
		}
	}
	if killed < 3 {
		t.Fatalf("%d of %d kills came in time", killed, kills)
	}
	r := mustRun(t, args(out)...)
	if !strings.Contains(r.Stderr, " are done already, in "+out+".part") {
		t.Errorf("stderr: %s", r.Stderr)
	}
	a, b := read(t, whole), read(t, out)
	if !bytes.Equal([]byte(a), []byte(b)) {
		t.Error("the table differs from that of a task that was not killed")
	}
	if _, err := os.Stat(out + ".part"); err == nil {
		t.Error("the part is still there")
	}
}

// All image files are looked at before the first is encoded; what is wrong names record and file.
func TestEmbedNamesBrokenImages(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	png := read(t, "../../selector/clip/testdata/pictures/wide.png")
	write(t, filepath.Join(dir, "cut.png"), png[:len(png)-40])
	write(t, filepath.Join(dir, "good.png"), png)
	write(t, filepath.Join(dir, "page.jpg"), "<html>not found</html>")
	var lines strings.Builder
	for i, name := range []string{"good.png", "cut.png", "gone.png", "page.jpg"} {
		text, _ := json.Marshal(map[string]any{"id": i, "image": name, "question": "q"})
		lines.Write(append(text, '\n'))
	}
	records := filepath.Join(dir, "r.jsonl")
	write(t, records, lines.String())
	out := filepath.Join(dir, "e.npy")
	r := run(t, embedArgs(records, out)...)
	for _, want := range []string{"r.jsonl:2 (id 1): image ", "cut.png: ", "r.jsonl:3 (id 2): image ", "gone.png: no such file",
		"r.jsonl:4 (id 3): image ", "page.jpg: not an image of a known format"} {
		if r.Code != 1 || !strings.Contains(r.Stderr, want) {
			t.Errorf("code %d, no %q:\n%s", r.Code, want, r.Stderr)
		}
	}
	if _, err := os.Stat(out + ".part"); err == nil {
		t.Error("something was encoded")
	}
	if r := run(t, embedArgs(records, out, "embed.modality=text")...); r.Code != 0 {
		t.Errorf("questions need no images: %s", r.Stderr)
	}
}
