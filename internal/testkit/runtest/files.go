package runtest

import (
	"bufio"
	"encoding/json"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// LastLine returns the last line of a text.
func LastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

// VqaFiles are the recorded result, annotation and question files.
func VqaFiles(more ...string) []string {
	dir := "../../rewardutil/testdata/"
	return append([]string{"task=evaluate", "evaluate.results=" + dir + "vqa_results.json",
		"evaluate.annotations=" + dir + "vqa_annotations.json",
		"evaluate.questions=" + dir + "vqa_questions.json"}, more...)
}

// ReadRows returns the rows of a metrics.jsonl.
func ReadRows(t *testing.T, path string) []map[string]any {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var rows []map[string]any
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var row map[string]any
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	return rows
}

// Refused checks the one line on stderr that says why the program ended.
func Refused(t *testing.T, r Result, code int, want ...string) {
	t.Helper()
	var said []string
	for _, line := range strings.Split(strings.TrimSpace(r.Stderr), "\n") {
		if strings.HasPrefix(line, "run: ") {
			said = append(said, line)
		}
	}
	if r.Code != code || len(said) != 1 || !strings.HasSuffix(strings.TrimSpace(r.Stderr), said[0]) {
		t.Errorf("exit code %d, want %d and one last line \"run: …\":\n%s", r.Code, code, r.Stderr)
		return
	}
	for _, w := range want {
		if !strings.Contains(said[0], w) {
			t.Errorf("the message lacks %q:\n%s", w, said[0])
		}
	}
}

// TinySummaries is a run of three phases of a very small model from random weights.
func TinySummaries(model string, more ...string) []string {
	return With([]string{"exp=summaries_tiny", "threads=1", "seed=3", "schedule=[sft,rce,grpo]", "data.batch_size=8",
		"data.summaries.train=24", "data.summaries.val=8", "data.summaries.test=8",
		"seq2seq.scratch.model=" + model, "seq2seq.scratch.d_model=16", "seq2seq.scratch.d_ff=24", "seq2seq.scratch.num_heads=2",
		"seq2seq.scratch.vocab_size=300", "seq2seq.generation.max_new_tokens=8",
		"sft.epochs=2", "rce.epochs=1", "rce.rollout=online", "rce.average=token", "grpo.epochs=2", "grpo.num_iterations=2", "grpo.group_size=3",
		"rewards.length.weight=0.5", "report.plots=false"}, more)
}

// TinyShapes is a run of three phases of a very small model from random weights.
func TinyShapes(more ...string) []string {
	return With([]string{"exp=shapes_vl", "threads=1", "seed=3", "data.batch_size=16", "data.conversations.demos=24",
		"data.shapes.train_queries=48", "data.shapes.val_queries=16", "data.shapes.dev_queries=16",
		"vl.scratch.hidden_size=32", "vl.scratch.intermediate_size=48", "vl.scratch.num_hidden_layers=2", "vl.scratch.image_pixels=3136",
		"vl.scratch.vision.hidden_size=16", "vl.scratch.vision.intermediate_size=24", "vl.scratch.vision.depth=1",
		"vl.scratch.vision.fullatt_block_indexes=[0]",
		"sft.epochs=2", "rce.epochs=1", "grpo.epochs=2", "grpo.group_size=4", "rewards.length.weight=0.1",
		"report.plots=false"}, more)
}

// Verifies fails the test unless a report agrees with its records, and returns what was said.
func Verifies(t *testing.T, path string) string {
	t.Helper()
	r := Run(t, "verify", path)
	if r.Code != 0 || !strings.Contains(r.Stdout, "everything agrees") {
		t.Fatalf("run verify %s: exit code %d\n%s%s", path, r.Code, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

// Change replaces what a pattern finds in a file of a run.
func Change(t *testing.T, path, pattern, text string) {
	t.Helper()
	data := Read(t, path)
	found := regexp.MustCompile(pattern).FindStringIndex(data)
	if found == nil {
		t.Fatalf("%s does not hold %s", path, pattern)
	}
	Write(t, path, data[:found[0]]+text+data[found[1]:])
}

// Copied is a copy of a run folder, which a report does not notice.
func Copied(t *testing.T, dir string) string {
	t.Helper()
	out := Folder(t)
	if err := os.CopyFS(out, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return out
}

// opaque returns a picture without its transparency, which the reference's numbers were made without: transformers dropped it then and lays
// it on white now, as the program does.
func opaque(t *testing.T, path string) string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	img, err := png.Decode(file)
	if err != nil {
		t.Fatal(err)
	}
	seen, ok := img.(*image.NRGBA)
	if !ok {
		return path
	}
	for i := 3; i < len(seen.Pix); i += 4 {
		seen.Pix[i] = 255
	}
	out, err := os.Create(filepath.Join(t.TempDir(), filepath.Base(path)))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := png.Encode(out, seen); err != nil {
		t.Fatal(err)
	}
	return out.Name()
}

// WriteLines writes JSON lines whose images and videos stand below root.
func WriteLines(t *testing.T, path, root string, lines ...map[string]any) {
	t.Helper()
	var b strings.Builder
	for _, line := range lines {
		if images, ok := line["images"].([]string); ok {
			for i, p := range images {
				images[i] = opaque(t, filepath.Join(root, p))
			}
		}
		if videos, ok := line["videos"].([]any); ok {
			for _, v := range videos {
				frames := v.(map[string]any)["frames"].([]string)
				for i, p := range frames {
					frames[i] = filepath.Join(root, p)
				}
			}
		}
		text, err := json.Marshal(line)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(text, '\n'))
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// WritePicture writes a picture of one colour, 56 pixels wide and high.
func WritePicture(t *testing.T, path string, c color.Color) {
	t.Helper()
	img := image.NewRGBA(image.Rect(0, 0, 56, 56))
	for y := range 56 {
		for x := range 56 {
			img.Set(x, y, c)
		}
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := png.Encode(f, img); err != nil {
		t.Fatal(err)
	}
}
