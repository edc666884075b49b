package tasks_test

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// longer is a run of 12 epochs on a beam file, long enough to do something to its files in between.
func longer(data []string, dir string) []string {
	return small(data, "hydra.run.dir="+dir, "rce.epochs=6", "grpo.epochs=6", "logging.progress=false")
}

// meanwhile starts a run, stops it when it has saved a state, lets do change something, and waits for its end.
func meanwhile(t *testing.T, args []string, dir string, do func()) result {
	t.Helper()
	p := start(t, args...)
	p.Until(func() bool { return exists(filepath.Join(dir, "checkpoints/rce_epoch1.state")) })
	p.Signal(syscall.SIGSTOP)
	do()
	p.Signal(syscall.SIGCONT)
	return p.Wait()
}

// overwritten is a table with other finite rows, of the same size.
func overwritten(table string) string {
	out := []byte(table)
	for i := 128; i+4 <= len(out); i += 4 {
		binary.LittleEndian.PutUint32(out[i:], math.Float32bits(float32(i%7)))
	}
	return string(out)
}

// inPlace writes content into the file at path, as `open(path, "r+b")` does; its size becomes that of the content.
func inPlace(t *testing.T, path, content string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(content); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(int64(len(content))); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Hour) // not only a clock's tick
	if err := os.Chtimes(path, later, later); err != nil {
		t.Fatal(err)
	}
}

// An embedding table that changes under a run, or is cut, ends it with one line that names the file, on a state that has not seen the
// change. A resume says which file it misses, and with that file back ends as a run that nothing happened to.
func TestTableChangesUnderARun(t *testing.T) {
	t.Parallel()
	data := beams(t, records())
	table := strings.TrimPrefix(data[2], "data.embeddings=")
	good, reference := read(t, table), folder(t)
	mustRun(t, longer(data, reference)...)
	whole := outcomeOf(t, reference)
	for name, bad := range map[string]string{"rows written over": overwritten(good), "cut to nothing": "", "cut in half": good[:len(good)/2],
		"grown": good + "more"} {
		if testing.Short() && (name == "cut in half" || name == "grown") {
			continue
		}
		t.Run(name, func(t *testing.T) { // one after the other: they share the table
			dir := folder(t)
			r := meanwhile(t, longer(data, dir), dir, func() { inPlace(t, table, bad) })
			refused(t, r, 1, table, "while it was in use", "run resume "+dir)
			if n := strings.Count(strings.TrimSpace(r.Stderr), "\n"); n > 0 {
				t.Errorf("%d more lines on stderr:\n%s", n, r.Stderr)
			}
			if r := run(t, "resume", dir); r.Code == 0 || !strings.Contains(r.Stderr, filepath.Base(table)) {
				t.Errorf("resume with the file of now: exit code %d, want an error that names it: %s", r.Code, r.Stderr)
			}
			inPlace(t, table, good)
			mustRun(t, "resume", dir)
			whole.Same(t, outcomeOf(t, dir), 2) // the one that was refused, too
			mustRun(t, "verify", dir)
		})
	}
	for name, do := range map[string]func(){
		"touched":          func() { inPlace(t, table, good) },
		"replaced":         func() { write(t, table+".new", overwritten(good)); os.Rename(table+".new", table) },
		"taken away":       func() { os.Remove(table) },
		"another's rights": func() { os.Chmod(table, 0o600) },
	} {
		if testing.Short() && name == "another's rights" {
			continue
		}
		t.Run(name+": nothing changes", func(t *testing.T) {
			write(t, table, good)
			dir := folder(t)
			r := meanwhile(t, longer(data, dir), dir, do)
			if r.Code != 0 {
				t.Fatalf("exit code %d: %s", r.Code, r.Stderr)
			}
			whole.Same(t, outcomeOf(t, dir), 0)
			if said := strings.Contains(r.Stderr, table+" has been replaced or removed"); said != (name == "replaced" || name == "taken away") {
				t.Errorf("stderr: %s", r.Stderr)
			}
		})
	}
}

// So do the weights of a model that adapters are trained on, which libtorch reads from the mapped file.
func TestWeightsChangeUnderARun(t *testing.T) {
	t.Parallel()
	_, root := openTexts(t)
	model := filepath.Join(filepath.Dir(folder(t)), "model")
	if err := os.CopyFS(model, os.DirFS(filepath.Join(root, "tiny_t5"))); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(model, "model.safetensors")
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	good := read(t, path)
	flipped := []byte(good)
	flipped[len(flipped)-400000] ^= 1 // the last bit of a weight: nothing else would show it
	train := func(dir string) []string {
		return []string{"policy=seq2seq", "data=summaries", "seq2seq.path=" + model, "seq2seq.dtype=float32", "seq2seq.lora.enabled=true",
			"threads=1", "schedule=[sft]", "sft.epochs=6", "data.batch_size=8", "data.summaries.train=24", "data.summaries.val=8",
			"data.summaries.test=8", "seq2seq.generation.max_new_tokens=4", "report.plots=false", "checks.off=[preflight,doctor]",
			"logging.progress=false", "hydra.run.dir=" + dir}
	}
	reference := folder(t)
	mustRun(t, train(reference)...)
	whole := outcomeOf(t, reference)
	for name, bad := range map[string]string{"cut": "", "one bit": string(flipped)} {
		dir := folder(t)
		p := start(t, train(dir)...)
		p.Until(func() bool { return exists(filepath.Join(dir, "checkpoints/sft_epoch1.state")) })
		p.Signal(syscall.SIGSTOP)
		inPlace(t, path, bad)
		p.Signal(syscall.SIGCONT)
		r := p.Wait()
		refused(t, r, 1, path, "while it was in use", "run resume "+dir)
		if r := run(t, "resume", dir); r.Code == 0 || !strings.Contains(r.Stderr, "model.safetensors") {
			t.Errorf("%s: resume with the file of now: exit code %d, want an error that names it: %s", name, r.Code, r.Stderr)
		}
		inPlace(t, path, good)
		mustRun(t, "resume", dir)
		after := outcomeOf(t, dir)
		whole.Same(t, after, after.Resumes)
	}
}
