package leverplus

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
)

// testdata/argparse.json is what Python's argparse makes of these lines. What it takes is taken here too; values of another type than the
// switch's are refused by the key that it sets.
func TestSwitchesAreThoseOfArgparse(t *testing.T) {
	var rows []struct {
		Argv   []string
		Values map[string]string
		Exit   *int
		Error  string
	}
	golden.JSON(t, "testdata/argparse.json", &rows)
	if len(rows) < 80 {
		t.Fatalf("only %d rows", len(rows))
	}
	known := map[string]Argument{}
	for _, s := range Switches() {
		known[s.Name] = s
	}
	for _, row := range rows {
		f := Flags()
		if err := f.Parse(row.Argv); err != nil || row.Exit != nil || f.NArg() > 0 {
			continue // names cut short, and what argparse refuses
		}
		values := Given(f)
		for name, value := range values {
			s := known[name]
			want, differs := row.Values[name]
			if !differs { // argparse's default, given explicitly
				want = map[Kind]string{Text: "'" + s.Initial + "'", Integer: s.Initial, Float: s.Initial}[s.Kind]
			}
			if got := pythonRepr(t, s, value); got != want && number(got) != number(want) {
				t.Errorf("%q: %s is %s, want %s", row.Argv, name, got, want)
			}
		}
		for name := range row.Values {
			if _, ok := values[name]; !ok {
				t.Errorf("%q: %s was not given, want %s", row.Argv, name, row.Values[name])
			}
		}
	}
}

// number reads a number as Python does; texts have none.
func number(text string) string {
	x, err := strconv.ParseFloat(strings.ReplaceAll(strings.TrimSpace(text), "_", ""), 64)
	if err != nil && !math.IsInf(x, 0) {
		return text
	}
	return strconv.FormatFloat(x, 'g', -1, 64)
}

func pythonRepr(t *testing.T, s Argument, value string) string {
	t.Helper()
	switch s.Kind {
	case Flag:
		return "True"
	case Float, Integer:
		return value
	}
	return "'" + value + "'"
}

func TestLeverPlusOverrides(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	legacy := file("legacy.json", `{"_meta": {}, "3": {"id_list": [[1, 2, 3]], "score_list": [0.5]}}`)
	rl := file("rl.json", `{"3": {"pointer_candidates": [{"pointer": [1, 2]}]}, "4": oops`)
	for _, tc := range []struct {
		name    string
		args    []string
		want    []string // after exp=lever_plus_compat
		notices []string
	}{
		{"the least", []string{"--beam_data", legacy, "--img_emb", "e.pt", "--device", "cpu"},
			[]string{"data.beams=" + legacy, "hydra.run.dir=results/grpo", "data.embeddings=e.pt", "device=cpu"}, nil},
		{"flags and numbers", []string{"--beam_data", legacy, "--img_emb", "e.pt", "--device=cpu", "--output_dir", "out",
			"--freeze_backbone_in_grpo", "--use_ppo_clip_only", "--rce_lr", "3e-4", "--kl_beta", "1", "--disable_adaptive_kl",
			"--no_skip_fallback_reward"},
			[]string{"data.beams=" + legacy, "hydra.run.dir=out", "data.embeddings=e.pt", "rce.lr=3e-4", "grpo.kl.beta=1",
				"grpo.kl.controller=fixed", "grpo.loss=ppo_clip", "device=cpu",
				"grpo.freeze=[input_proj,query_proj,cand_proj]", "data.skip_fallback=false"}, nil},
		{"RL data force batches of 1", []string{"--beam_data", rl, "--img_emb", "e.pt", "--device=cpu", "--batch_size", "16"},
			[]string{"data.beams=" + rl, "hydra.run.dir=results/grpo", "data.embeddings=e.pt", "data.batch_size=1",
				"device=cpu"}, []string{"--batch_size 16 has no effect"}},
		{"what the reference ignores", []string{"--beam_data", legacy, "--img_emb", "e.pt", "--device=cpu", "--text_emb", "t.pt",
			"--candidate_size", "64"},
			[]string{"data.beams=" + legacy, "hydra.run.dir=results/grpo", "data.embeddings=e.pt",
				"device=cpu"}, []string{"--text_emb has no effect", "--candidate_size has no effect"}},
		{"odd paths are quoted", []string{"--beam_data", legacy, "--img_emb", "a b,c.pt", "--device=cpu", "--output_dir", "01",
			"--sft_ckpt", "", "--reward_correctness_mode", "01"},
			[]string{"data.beams=" + legacy, "hydra.run.dir='01'", "data.embeddings='a b,c.pt'", "device=cpu",
				"data.reward.correctness_mode='01'"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := Flags()
			if err := f.Parse(tc.args); err != nil {
				t.Fatal(err)
			}
			got, notices, err := Overrides(Given(f))
			if err != nil {
				t.Fatal(err)
			}
			if want := append([]string{"exp=lever_plus_compat"}, tc.want...); !reflect.DeepEqual(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
			if len(notices) != len(tc.notices) {
				t.Fatalf("notices %q, want %q", notices, tc.notices)
			}
			for i, want := range tc.notices {
				if !strings.Contains(notices[i], want) {
					t.Errorf("notice %q, want %q", notices[i], want)
				}
			}
		})
	}
}

// docs/lever_plus.md maps every switch, with its default and the key that it sets, and nothing else.
func TestLeverPlusPageIsCurrent(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(golden.RepoRoot(), "docs", "lever_plus.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, "|"); len(cells) > 4 && strings.HasPrefix(cells[1], " `--") {
			rows[strings.Trim(cells[1], " `-")] = cells
		}
	}
	for _, s := range Switches() {
		row, ok := rows[s.Name]
		if !ok {
			t.Errorf("no row for --%s", s.Name)
			continue
		}
		initial := s.Initial
		switch {
		case s.Kind == Flag:
			initial = "off"
		case s.Required || s.Name == "img_emb":
			initial = "required"
		case initial == "":
			initial = "none"
		}
		key := s.Key
		if s.Kind == Flag && key != "" {
			key += "=" + s.Value
		}
		if key == "" {
			key = "–"
		}
		if got, gotKey := strings.Trim(row[2], " `"), strings.Trim(row[3], " `"); got != initial || gotKey != key {
			t.Errorf("--%s: the page says %s and %s, want %s and %s", s.Name, got, gotKey, initial, key)
		}
		delete(rows, s.Name)
	}
	for name := range rows {
		t.Errorf("--%s is no switch", name)
	}
}
