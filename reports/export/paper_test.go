package export

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"fulcrum/internal/testkit/reportstest"
	"fulcrum/reports/arms"
	"fulcrum/reports/compare"
	"fulcrum/reports/record"
	"fulcrum/reports/stats"
)

// seededRuns are runs of two settings, three seeds each.
func seededRuns(t *testing.T) (runs []*record.Run) {
	t.Helper()
	for i := range 6 {
		dir, lr := filepath.Join(t.TempDir(), fmt.Sprint(i)), []string{"1.0e-5", "1.0e-4"}[i%2]
		reportstest.SweepRun(t, dir, uint64(i), []float64{0.01, 0.05}[i%2]+0.005*float64(i/2),
			fmt.Sprintf("seed: %d\ngrpo: {lr: %s, note: '50%% of a_b & c#d {e} ~f^ \\g'}\nschedule: [grpo]\n", i/2, lr))
		run, err := record.ReadRun(dir)
		reportstest.Must(t, err)
		runs = append(runs, run)
	}
	return runs
}

// A table for a paper is LaTeX: each row has its columns, and no letter of a setting means something there.
func TestPaperTable(t *testing.T) {
	runs := seededRuns(t)
	for _, tc := range []struct {
		name  string
		paper Paper
		runs  []*record.Run
		want  []string
	}{
		{"settings", Paper{Digits: -1}, runs, []string{"setting & score & difference \\\\", "lr=1e-05 & $", "lr=0.0001 & $\\mathbf{",
			"$+0.046 \\pm ", "Seeds: 0, 1 and 2. ", " Varied: grpo.lr. ", "grpo: note 50\\% of a\\_b \\& c\\#d \\{e\\} \\textasciitilde{}f"}},
		{"columns and digits", Paper{Digits: 2, Columns: []string{"difference", "seeds", "verdict", "p", "questions"}}, runs,
			[]string{"setting & seeds & questions & difference & verdict & p \\\\",
				"$+0.05 \\pm 0.", "lr=1e-05 & 3 & 200 & -- & -- & -- ", "& better & ",
				"\\begin{table}\n"}},
		{"keys of the configuration", Paper{Digits: -1, Columns: []string{"score", "grpo.lr", "seed", "seeds"}}, runs,
			[]string{"setting & grpo.lr & seed & seeds & score \\\\", "lr=1e-05 & 1e-05 & 0, 1, 2 & 3 & $", "similarity & -- & -- & "}},
		{"keys of one run", Paper{Digits: -1, Columns: []string{"grpo.lr"}}, runs[:1], []string{"policy & grpo.lr \\\\", "similarity & -- \\\\",
			"best (grpo epoch 2) & 1e-05 \\\\"}},
		{"one run", Paper{Digits: -1, Metrics: []string{"reward", "dev/reward"}}, runs[:1],
			[]string{"policy & score & gain & score & gain \\\\", "\\cmidrule(lr){2-3}\\cmidrule(lr){4-5}", "\\begin{table*}", "Seed: 0. "}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text, err := tc.paper.Table(compare.Settings(tc.runs))
			reportstest.Must(t, err)
			for _, want := range tc.want {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not in\n%s", want, text)
				}
			}
			readLatex(t, text)
		})
	}
	for _, tc := range []struct {
		paper Paper
		want  string
	}{
		{Paper{Metrics: []string{"dev/rewrd"}}, `unknown metric "dev/rewrd" (did you mean dev/reward?): want one of `},
		{Paper{Columns: []string{"scor"}}, `unknown column "scor" (did you mean score?): want one of score, gain`},
		{Paper{Columns: []string{"grpo.rl"}}, `unknown column "grpo.rl" (did you mean grpo.lr?): want one of score, gain`},
	} {
		if _, err := tc.paper.Table(compare.Settings(runs)); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%v, want %s", err, tc.want)
		}
	}
}

// No row or setting of a table for a paper is lost, and none says what is not known.
func TestPaperTableTellsAll(t *testing.T) {
	tree := func(text string) map[string]any {
		var out map[string]any
		reportstest.Must(t, yaml.Unmarshal([]byte(text), &out))
		return out
	}
	few := func(runs []*record.Run, n int) []*record.Run {
		for _, r := range runs {
			for i := range r.Evaluations {
				r.Evaluations[i].QueryIDs, r.Evaluations[i].Scores = r.Evaluations[i].QueryIDs[:n], r.Evaluations[i].Scores[:n]
			}
		}
		return runs
	}
	stages := seededRuns(t)
	for i, r := range stages {
		r.Tree = tree([]string{"{seed: 1, schedule: [rce], rce: {lr: 1, top: null}, vars: {x: 1}}",
			"{seed: 1, schedule: [rce, grpo], rce: {lr: 1, top: 3}, grpo: {lr: 2, a: 1, b: 1}, vars: {x: 1}}"}[i%2])
	}
	unscored := seededRuns(t)
	unscored[0].Evaluations = nil
	// A policy with the scores of similarity and so much more.
	above := func(policy string, more float64) []*record.Run {
		runs := seededRuns(t)
		for _, r := range runs {
			for _, e := range r.Evaluations {
				if e.Policy == record.PolicySimilarity {
					e.Policy, e.Scores = policy, slices.Clone(e.Scores)
					for i := range e.Scores {
						e.Scores[i] += more
					}
					r.Evaluations = append(r.Evaluations, e)
				}
			}
		}
		return runs
	}
	accuracy := seededRuns(t)
	for _, e := range accuracy[1].Evaluations {
		e.Metric = "accuracy"
		accuracy[1].Evaluations = append(accuracy[1].Evaluations, e)
	}
	fewer := seededRuns(t)[:2]
	few(fewer[1:], 120)
	// Two seeds of each setting that differ by more than the settings do.
	two := above(record.PolicyRandom, -0.01)[:4]
	for i, r := range two {
		for _, e := range r.Evaluations {
			for k := range e.Scores {
				if e.Policy == record.PolicyBest {
					e.Scores[k] += []float64{0, 0.1, 0.1, 0}[i]
				}
			}
		}
	}
	tied := seededRuns(t)[:2]
	for i, e := range tied[1].Evaluations {
		for k := range e.Scores {
			if e.Policy == record.PolicyBest {
				e.Scores[k] = tied[0].Evaluations[i].Scores[k] + 0.001*float64(k%3-1)
			}
		}
	}
	// Two seeds far apart with a mean between the best and the majority answer, which is not separable from the best.
	between := above(record.PolicyMajority, 0)[:3]
	for i, r := range between {
		for e, of := range r.Evaluations {
			for k := range of.Scores {
				switch top := between[1].Evaluations[e].Scores[k]; of.Policy {
				case record.PolicyBest:
					of.Scores[k] = top + []float64{0.1, 0, -0.102}[i]
				case record.PolicyMajority:
					best := slices.IndexFunc(r.Evaluations, func(o record.Evaluation) bool { return o.Policy == record.PolicyBest })
					of.Scores[k] = between[1].Evaluations[best].Scores[k] + 0.05*float64(k%3-1) - 0.002
				}
			}
		}
	}
	looks := seededRuns(t)[:2]
	for n, r := range looks {
		r.Tree = tree(fmt.Sprintf("{seed: 1, schedule: [grpo], rce: {temperature: {start: 2}}, rewards: {vqa: {weight: 1}, rouge: {weight: 0}}, "+
			"grpo: {epochs: 1, lr: %d}}", n))
		for i, e := range r.Evaluations {
			r.Evaluations[i].Look = stats.LookAt(1)
			e.Metric, e.Look = "accuracy", stats.LookAt(2)
			r.Evaluations = append(r.Evaluations, e)
		}
	}
	for _, tc := range []struct {
		name   string
		paper  Paper
		runs   []*record.Run
		wants  []string
		absent string
	}{
		{"other questions", Paper{Digits: -1}, fewer, []string{"(200 and 120 questions)", "setting & questions & score & difference \\\\",
			"lr=1e-05 & 200 & ", "lr=0.0001 & 120 & ", "Baselines would be those of one of them."}, "similarity & "},
		{"two seeds that separate nothing", Paper{Digits: 2}, two, []string{"lr=0.0001 & $\\mathbf{", "random & $0."}, "random & $\\mathbf"},
		{"two seeds: a setting", Paper{Digits: 2}, two, []string{"lr=1e-05 & $0."}, "similarity & $\\mathbf"},
		{"two seeds between bold rows", Paper{Digits: 3}, between, []string{"lr=1e-05 & $\\mathbf{", "lr=0.0001 & $\\mathbf{",
			"majority & $\\mathbf{"}, "similarity & $\\mathbf"},
		{"a tie", Paper{Digits: 3}, tied, []string{"lr=1e-05 & $\\mathbf{", "lr=0.0001 & $\\mathbf{"}, "similarity & $\\mathbf"},
		{"what trained, and its looks", Paper{Digits: -1, Metrics: []string{"reward", "accuracy"}}, looks, []string{
			"Settings: schedule [grpo]; grpo: epochs 1; rewards: vqa weight 1.", "By reward on dev, this was look 1 at",
			"By accuracy on dev, this was look 2 at"}, "$\\tau$"},
		{"a phase that one setting has", Paper{Digits: -1}, stages[:2], []string{
			"l@{}}top=null\\\\schedule=[rce]\\end{tabular} & $",
			"l@{}}top=3\\\\schedule=[rce, grpo]\\end{tabular} & $",
			"Varied: schedule and rce.top.", "Settings: rce: learning rate 1; grpo: a 1, b 1, learning rate 2."}, "vars"},
		{"a setting without scores", Paper{Digits: -1}, unscored[:2], []string{
			"lr=1e-05 & -- & -- \\", "lr=0.0001 & $\\mathbf{", "was not scored"}, ""},
		{"a metric of one setting", Paper{Digits: -1, Metrics: []string{"reward", "accuracy"}}, accuracy[:2],
			[]string{"lr=1e-05 & $", " & -- & -- \\\\\nlr=0.0001", "Reward on dev (200 questions) and accuracy on dev (200 questions)"}, "& 0 &"},
		{"said once of two metrics", Paper{Digits: -1, Metrics: []string{"reward", "dev/reward"}, Columns: []string{"seeds"}}, stages,
			[]string{"setting & seeds \\"}, "multicolumn"},
		{"a bound", Paper{Digits: -1}, above(record.PolicyOracle, 0.5), []string{"lr=0.0001 & $\\mathbf{", "\\\\\n\\midrule\noracle & $0.9",
			" Below the last rule: upper bounds, which know the answers and are never bold."}, "similarity & $\\mathbf"},
		{"a baseline that is the best", Paper{Digits: -1}, above(record.PolicyMajority, 0.5), []string{"majority & $\\mathbf{0.9"},
			"lr=0.0001 & $\\mathbf"},
		{"defaults", Paper{Digits: -1, Default: func(key string) any { return map[string]any{"rce.top": 3, "grpo.lr": 2, "grpo.a": 7}[key] }},
			stages[1:2], []string{"Settings: schedule [rce, grpo]; rce: learning rate 1; grpo: a 1, b 1, learning rate 2. Other settings " +
				"are the program's defaults. Intervals"}, "top 3"},
		{"one question", Paper{Digits: -1}, few(seededRuns(t), 1)[:1], []string{"similarity & $0.8199$"}, "$0.8199 "},
	} {
		text, err := tc.paper.Table(compare.Settings(tc.runs))
		reportstest.Must(t, err)
		for _, want := range tc.wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is not in\n%s", tc.name, want, text)
			}
		}
		if tc.absent != "" && strings.Contains(text, tc.absent) {
			t.Errorf("%s: %q is in\n%s", tc.name, tc.absent, text)
		}
		readLatex(t, text)
	}
}

// readLatex reads a table as LaTeX does: braces and dollars in pairs, as many cells in each row as the table has columns, and letters that
// mean something only where they do. Where there is a LaTeX, that reads it too.
func readLatex(t *testing.T, text string) {
	t.Helper()
	plain := strings.NewReplacer(`\\`, "\n", `\%`, "", `\_`, "", `\&`, "", `\#`, "", `\{`, "", `\}`, "", `\$`, "").Replace(text)
	_, plain, _ = strings.Cut(plain, "\n") // what it needs
	if strings.Count(plain, "{") != strings.Count(plain, "}") || strings.Count(plain, "$")%2 != 0 {
		t.Errorf("braces or dollars without a partner:\n%s", text)
	}
	if bad := regexp.MustCompile(`[%#_~^]`).FindAllString(plain, -1); bad != nil {
		t.Errorf("%q would mean something:\n%s", bad, text)
	}
	columns := len(regexp.MustCompile(`tabular}{@{}(\w+)@`).FindStringSubmatch(text)[1])
	_, body, _ := strings.Cut(text, "\\midrule\n")
	body, _, _ = strings.Cut(body, "\\bottomrule")
	for line := range strings.Lines(strings.ReplaceAll(body, "\\midrule\n", "")) {
		if got := strings.Count(strings.ReplaceAll(line, `\&`, ""), "&") + 1; got != columns || !strings.HasSuffix(line, " \\\\\n") {
			t.Errorf("%d cells, want %d: %s", got, columns, line)
		}
	}
	latex, err := exec.LookPath("pdflatex")
	if err != nil {
		return
	}
	dir := t.TempDir()
	reportstest.Must(t, os.WriteFile(filepath.Join(dir, "p.tex"), []byte("\\documentclass[twocolumn]{article}\\usepackage{booktabs}\n"+
		"\\usepackage[T1]{fontenc}\\begin{document}\n"+text+"\\end{document}\n"), 0o644))
	cmd := exec.Command(latex, "-draftmode", "-halt-on-error", "p.tex")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "Overfull") {
		t.Errorf("%v\n%s", err, out)
	}
}

// A caption names what the gains of each column are over.
func TestCaptionNamesEveryReference(t *testing.T) {
	block := func(metric, over string, n int) *paperBlock {
		scored := arms.Told{Arm: arms.Arm{Seeds: []int64{0}, QueryIDs: []int64{1, 2}, Scores: [][]float64{{0, 1}}}}
		return &paperBlock{split: "dev", metric: metric, over: over, arms: n, rows: slices.Repeat([]arms.Told{scored}, n)}
	}
	for want, blocks := range map[string][]*paperBlock{
		"gains over the policy that each began with.": {block("reward", "initial policy", 2), block("accuracy", "initial policy", 2)},
		"gains over similarity in reward on dev and the policy that each began with in loss on dev.": {
			block("reward", "similarity", 2), block("loss", "initial policy", 2)},
	} {
		if got := caption(blocks, []string{"gain"}); !strings.Contains(got, want) {
			t.Errorf("%s: want %s", got, want)
		}
	}
}
