package verify

import (
	"bytes"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/testkit/reportstest"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/runreport"
)

func verified(t *testing.T, dir string) *Verification {
	t.Helper()
	return verifiedBy(t, "test", dir)
}

func verifiedBy(t *testing.T, version, dir string) *Verification {
	t.Helper()
	v, err := VerifyRun(dir, VerifyOptions{Version: version})
	reportstest.Must(t, err)
	return v
}

func mismatches(v *Verification) string {
	var b strings.Builder
	for _, m := range v.Mismatches {
		b.WriteString(m.String() + "\n")
	}
	return b.String()
}

func TestAnUntouchedRunVerifies(t *testing.T) {
	dir := honestRun(t)
	v := verified(t, dir)
	if len(v.Mismatches) > 0 || len(v.Notes) > 0 {
		t.Fatalf("%s%v", mismatches(v), v.Notes)
	}
	for _, want := range []string{"digests", "20 step rows and 4 epoch rows (4 of them", "36 events of TensorBoard", "12 evaluations",
		"summary.json", "plots drawn again", "lines of report.md"} {
		if !strings.Contains(v.Summary(), want) {
			t.Errorf("checked %s: want %q in it", v.Summary(), want)
		}
	}
	elsewhere := filepath.Join(t.TempDir(), "with [odd] name")
	reportstest.Must(t, os.CopyFS(elsewhere, os.DirFS(dir)))
	if v := verified(t, elsewhere); len(v.Mismatches) > 0 {
		t.Errorf("a copy: %s", mismatches(v))
	}
	reportstest.Must(t, runreport.RebuildReport(elsewhere))
	if v := verified(t, elsewhere); len(v.Mismatches) > 0 {
		t.Errorf("a report that was written again: %s", mismatches(v))
	}
}

// honest returns the folder of a run with four plots of thirteen, and a copy of it without any: drawing takes longer than all the rest.
func honest(t *testing.T) (whole, bare string) {
	t.Helper()
	whole, bare = honestRun(t), filepath.Join(t.TempDir(), "bare")
	kept := []string{"kl", "losses", "reward", "grad_norm"}
	for _, f := range runreport.Figures() {
		for _, ending := range []string{".svg", ".png"} {
			if path := filepath.Join(whole, runreport.PlotsFolder, f.Name+ending); !slices.Contains(kept, f.Name) {
				os.Remove(path) // the run may have nothing to show in it
			}
		}
	}
	reportstest.Must(t, runreport.WriteReport(whole))
	reportstest.Must(t, os.CopyFS(bare, os.DirFS(whole)))
	reportstest.Must(t, os.RemoveAll(filepath.Join(bare, runreport.PlotsFolder)))
	reportstest.Must(t, runreport.WriteReport(bare))
	return whole, bare
}

// A digit that was changed in a file of any kind is found, and the file named, by the version that made the folder and by another one,
// which names both. The words and curves of that version are no difference.
func TestEveryVersionFindsADigit(t *testing.T) {
	whole, bare := honest(t)
	events, err := filepath.Glob(filepath.Join(bare, record.EventFilesPattern))
	reportstest.Must(t, err)
	var files []string
	for _, tc := range []struct{ file, old, text string }{
		{page.ReportFile, `0\.459 ±`, `0.458 ±`},
		{page.HtmlFile, `0\.459 ±`, `0.458 ±`},
		{record.SummaryFile, `"mean": 0.4`, `"mean": 0.5`},
		{"plots/kl.svg", `>0\.10<`, `>0.70<`},
		{record.MetricsFile, `"grad_norm":1\.1`, `"grad_norm":1.2`},
		{record.EvalsFile, `0\.6363636363636364`, `0.6363636363636365`},
		{record.RunLogFile, `reward 0\.4`, `reward 0.5`},
		{filepath.Base(events[0]), `rce/train/loss.....`, "rce/train/loss\x15\x01\x01\x01\x40"},
	} {
		files = append(files, tc.file)
		of := bare
		if strings.HasPrefix(tc.file, runreport.PlotsFolder) {
			of = whole
		}
		dir := filepath.Join(t.TempDir(), "run")
		reportstest.Must(t, os.CopyFS(dir, os.DirFS(of)))
		edit(t, filepath.Join(dir, tc.file), tc.old, tc.text)
		for _, version := range []string{"test", "another"} {
			v := verifiedBy(t, version, dir)
			if !strings.Contains(mismatches(v), tc.file) {
				t.Errorf("version %s: a digit of %s: found\n%s", version, tc.file, mismatches(v))
			}
			if version == "another" && !strings.Contains(strings.Join(v.Notes, "\n"), "(test; this is another)") {
				t.Errorf("the notes name no versions: %q", v.Notes)
			}
		}
	}
	if len(files) != 8 {
		t.Errorf("%d kinds of files", len(files))
	}
	edit(t, filepath.Join(whole, page.ReportFile), `## Limits`, "All is well.\n\n## What limits it")
	edit(t, filepath.Join(whole, page.ReportFile), `0\.459 ±`, "0.46 ±")
	edit(t, filepath.Join(whole, "plots/losses.svg"), `M[\d.]+,[\d.]+`, `M60,60`)
	pixels(t, whole)
	if v := verifiedBy(t, "another", whole); len(v.Mismatches) > 0 {
		t.Errorf("another version's words: %s", mismatches(v))
	}
}

// Each edit is caught in the folder as it is; most are still caught by a contradiction after somebody has removed
// the digests and written the report again.
func TestEditsAreCaught(t *testing.T) {
	whole, bare := honest(t)
	in := func(name, old, text string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { edit(t, filepath.Join(dir, name), old, text) }
	}
	for _, tc := range []struct {
		name    string
		edit    func(*testing.T, string)
		want    string // a mismatch
		rebuilt string // a mismatch without digests, in a rebuilt report; "" when the rebuilt report is right again
	}{
		{"a step's metric", in(record.MetricsFile, `"kl":0.026`, `"kl":0.021`), "metrics.jsonl:22: grpo step 2: stated its numbers, " +
			"recomputed no such event", "kl of grpo epoch 1"},
		{"an epoch's metric", in(record.MetricsFile, `"val_reward":0.47`, `"val_reward":0.57`), "metrics.jsonl:18: rce epoch 2: stated its numbers", "metrics.jsonl:18: rce epoch 2"},
		{"an epoch's mean", in(record.MetricsFile, `("kind":"epoch","phase":"grpo".*"kl":)0.03`,
			`"kind":"epoch","phase":"grpo","epoch":1,"step":5,"global_step":15,"time":1,"kl":0.05`), "kl of grpo epoch 1: stated 0.05",
			"kl of grpo epoch 1: stated 0.05"},
		{"an evaluation", in(record.MetricsFile, `"policy":"best","reward":0\.\d+`, `"policy":"best","reward":0.9`),
			"reward of best on val: stated 0.9", "reward of best on val: stated 0.9"},
		{"a question's score", in(record.EvalsFile, `0.6363636363636364`, `0.7363636363636364`), "the mean of 40 questions (evals.jsonl:1)",
			"the mean of 40 questions (evals.jsonl:1)"},
		{"what best was chosen from", in(record.EvalsFile, `,"chosen_from":5`, ``), "evals.jsonl:11: chosen_from of best on val: stated 0, " +
			"recomputed 5", "evals.jsonl:11: chosen_from of best on val: stated 0, recomputed 5"},
		{"a step that is gone", in(record.MetricsFile, `\{"kind":"step","phase":"rce","epoch":1,"step":3.*\n`, ""),
			"metrics.jsonl:11: steps of rce epoch 1: stated 5, recomputed 4 rows", "steps of rce epoch 1: stated 5"},
		{"a histogram", in(record.MetricsFile, `"adv_hist":\[3,0`, `"adv_hist":[5,0`), "metrics.jsonl:21: grpo step 1", "adv_hist of grpo epoch 1"},
		{"the end of the log", in(record.MetricsFile, `\{"kind":"eval","phase":"grpo","epoch":2,"step":0,"global_step":20,"time":[\d.]+,"split":"dev","policy":"best".*\n`, ""), "evals.jsonl:12: reward of best on dev", "evals.jsonl:12: reward of best on dev"},
		{"a number of the summary", in(record.SummaryFile, `"mean": 0.4\d+`, `"mean": 0.5`), `summary.json:142: stated "\"mean\": 0.5,"`,
			`summary.json:142: stated "\"mean\": 0.5,"`},
		{"the best checkpoint", in(record.SummaryFile, `"epoch": 2,\n    "checkpoint": "checkpoints/grpo_epoch2`,
			"\"epoch\": 1,\n    \"checkpoint\": \"checkpoints/grpo_epoch1"), `summary.json:73: stated "\"epoch\": 1,", recomputed "\"epoch\": 2,"`,
			`summary.json:73: stated "\"epoch\": 1,"`},
		{"a warning that is hidden", in(record.SummaryFile, `"warnings": \[[^\]]*\]`, `"warnings": []`), `summary.json:850: stated "\"warnings\": [],"`,
			`summary.json:850: stated "\"warnings\": [],"`},
		{"a run that did not end", in(".hydra/config.yaml", `rce: \{epochs: 2\}`, `rce: {epochs: 3}`), "unfinished: rce has 2 of 3 epochs",
			"unfinished: rce has 2 of 3 epochs"},
		{"another seed", in(".hydra/config.yaml", `seed: 1`, `seed: 2`), `summary.json:12: stated "\"seed\": 1,"`,
			`summary.json:12: stated "\"seed\": 1,", recomputed "\"seed\": 2,"`},
		{"a line of the log", in(record.RunLogFile, `eval  val  best  reward 0.\d+`, `eval  val  best  reward 0.9000`),
			`run.log: digest`, ""},
		{"a line of the log that no row has", in(record.RunLogFile, `\[[^\n]*\n$`, "[2025-03-01 12:00:30,000][eval][INFO] - eval  dev  "+
			"other  reward 0.9\n"), `run.log: digest`, ""},
		{"a line of the log that is gone", in(record.RunLogFile, `\[.*\] - grpo  epoch 2/2.*\n`, ""), "run.log: digest", ""},
		{"a word of the log", in(record.RunLogFile, `12 parameters`, `13 parameters`), "run.log: digest", ""},
		{"a number of the report", in(page.ReportFile, `\| grpo \| |0\.4\d\d ±`, `0.900 ±`), `report.md:`, ""},
		{"a line that was added to the report", in(page.ReportFile, `## Limits`, "All is well.\n\n## Limits"),
			`stated "All is well.", recomputed no such line`, ""},
		{"a label of a plot", in("plots/kl.svg", `>0\.10<`, `>0.05<`), `plots/kl.svg:33: stated "`, ""},
		{"a curve of a plot", in("plots/losses.svg", `M[\d.]+,[\d.]+`, `M60,60`), `plots/losses.svg:7: stated "<path d=\"M60,60L648`, ""},
		{"a pixel of a plot", pixels, "plots/reward.png: stated a picture of", ""},
		{"a plot that is gone", func(t *testing.T, dir string) { reportstest.Must(t, os.Remove(filepath.Join(dir, "plots/kl.png"))) },
			"plots/kl.png", ""},
		{"a file of weights", in("checkpoints/grpo_epoch2.safetensors", "weights", "wEights"),
			"checkpoints/grpo_epoch2.safetensors: digest: stated SHA-256", "damaged: its tensors have the SHA-256"},
		{"weights that are gone", func(t *testing.T, dir string) {
			reportstest.Must(t, os.Remove(filepath.Join(dir, "checkpoints/grpo_epoch2.safetensors")))
		}, "checkpoints/grpo_epoch2.safetensors: digest: stated 175 bytes, recomputed no such file", ""},
		{"TensorBoard's events", tensorboard, "events.out.tfevents", "no such event in events.out.tfevents"},
		{"the digests", in(record.ManifestFile, `"bytes": 8`, `"bytes": 9`), "digest", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "run")
			of, rebuild := bare, runreport.WriteReport
			if strings.Contains(tc.name, "plot") {
				of, rebuild = whole, runreport.RebuildReport
			}
			reportstest.Must(t, os.CopyFS(dir, os.DirFS(of)))
			tc.edit(t, dir)
			if got := mismatches(verified(t, dir)); !strings.Contains(got, tc.want) {
				t.Errorf("found\n%s\nwant %s", got, tc.want)
			}
			if again := strings.Contains(tc.name, "plot"); again && tc.name != "a label of a plot" {
				return // the next check would only draw what has been drawn
			}
			reportstest.Must(t, os.Remove(filepath.Join(dir, record.ManifestFile)))
			reportstest.Must(t, rebuild(dir))
			switch got := mismatches(verified(t, dir)); {
			case tc.rebuilt == "" && got != "":
				t.Errorf("after the digests were removed and the report written again:\n%s", got)
			case !strings.Contains(got, tc.rebuilt):
				t.Errorf("after the digests were removed and the report written again: found\n%s\nwant %s", got, tc.rebuilt)
			}
		})
	}
}

// pixels paints a small square of a plot.
func pixels(t *testing.T, dir string) {
	path := filepath.Join(dir, "plots/reward.png")
	data, err := os.ReadFile(path)
	reportstest.Must(t, err)
	img, err := png.Decode(bytes.NewReader(data))
	reportstest.Must(t, err)
	out := image.NewRGBA(img.Bounds())
	draw.Draw(out, out.Bounds(), img, image.Point{}, draw.Src)
	draw.Draw(out, image.Rect(300, 200, 310, 210), image.NewUniform(color.RGBA{200, 30, 30, 255}), image.Point{}, draw.Src)
	var buf bytes.Buffer
	reportstest.Must(t, png.Encode(&buf, out))
	reportstest.Must(t, os.WriteFile(path, buf.Bytes(), 0o644))
}

// tensorboard writes the events again with another number in one of them, checksums and all.
func tensorboard(t *testing.T, dir string) {
	paths, err := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*"))
	reportstest.Must(t, err)
	data, err := os.ReadFile(paths[0])
	reportstest.Must(t, err)
	at := bytes.Index(data, []byte("grpo/train/kl"))
	var w record.EventWriter
	var out []byte
	from, done := 0, 0
	_, err = record.EachEvent(data, func(payload []byte) {
		if from < at && at < from+len(payload) {
			payload = bytes.Clone(payload)
			payload[at-from-12+len("grpo/train/kl")+3]++ // a byte of the float32 behind the tag
			done++
		}
		out = append(out, w.Frame(payload)...)
		from += 16 + len(payload)
	})
	reportstest.Must(t, err)
	if done != 1 {
		t.Fatalf("%d records edited", done)
	}
	reportstest.Must(t, os.WriteFile(paths[0], out, 0o644))
}

func TestAnEditedPageIsCaught(t *testing.T) {
	dir := honestRun(t)
	edit(t, filepath.Join(dir, page.HtmlFile), `\d\.\d\d\d ±`, "9.999 ±")
	if got := mismatches(verified(t, dir)); !strings.HasPrefix(got, "report.html:") || !strings.Contains(got, "9.999") {
		t.Errorf("an edited page: %s", got)
	}
}

// Epochs of a phase that score the same are told apart by what they have learnt, as in training: the lowest loss is the highest.
func TestBestOfEqualScores(t *testing.T) {
	row := func(phase string, epoch int, reward, loss float64) numberedRow {
		return numberedRow{Row: record.Row{Kind: record.KindEpoch, Phase: phase, Epoch: epoch,
			Fields: map[string]any{"val_reward": reward, "val_loss": loss}}}
	}
	for _, tc := range []struct {
		name  string
		rows  []numberedRow
		epoch int
	}{
		{"the later has learnt more", []numberedRow{row("grpo", 1, 0.25, 10.31), row("grpo", 2, 0.25, 10.28)}, 2},
		{"the earlier has", []numberedRow{row("grpo", 1, 0.25, 10.28), row("grpo", 2, 0.25, 10.31)}, 1},
		{"another phase stays behind", []numberedRow{row("rce", 1, 0.25, 10.31), row("grpo", 2, 0.25, 10.28)}, 1},
	} {
		c := &runCheck{run: &record.Run{Tree: map[string]any{}}, others: tc.rows}
		if got := c.best(&record.BestSummary{Metric: "val_reward", Mode: "max"}); got.Epoch != tc.epoch {
			t.Errorf("%s: epoch %d, want %d", tc.name, got.Epoch, tc.epoch)
		}
	}
}

// edit replaces a text in a file of the run.
func edit(t *testing.T, path, old, text string) {
	t.Helper()
	data, err := os.ReadFile(path)
	reportstest.Must(t, err)
	found := regexp.MustCompile(old).FindIndex(data)
	if found == nil {
		t.Fatalf("%s does not hold %s", path, old)
	}
	reportstest.Must(t, os.WriteFile(path, append(append(append([]byte{}, data[:found[0]]...), text...), data[found[1]:]...), 0o644))
}
