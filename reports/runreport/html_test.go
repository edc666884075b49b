package runreport

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/testkit/reportstest"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
)

// A page holds its plots, asks for nothing from elsewhere, and is the same every time.
func TestPageStandsAlone(t *testing.T) {
	dir := fakeAnswers(t, 1)
	reportstest.Must(t, RebuildReport(dir))
	first, err := os.ReadFile(filepath.Join(dir, page.HtmlFile))
	reportstest.Must(t, err)
	if n, want := bytes.Count(first, []byte("<svg")), len(drawnNames(dir)); n != want || n < 6 {
		t.Errorf("%d plots in the page, %d were drawn", n, want)
	}
	for _, elsewhere := range []string{"<script src", "<link", "src=\"http", "url(", "@import", "is not there"} {
		if bytes.Contains(first, []byte(elsewhere)) {
			t.Errorf("the page holds %q", elsewhere)
		}
	}
	for _, want := range []string{"<title>shapes_vl (data=shapes)</title>", `<p class="verdict">`, `<a href="#results">Results</a>`,
		`<td class="word better">`, "prefers-color-scheme: dark", "@media print"} {
		if !bytes.Contains(first, []byte(want)) {
			t.Errorf("the page does not hold %q", want)
		}
	}
	reportstest.Must(t, RebuildReport(dir))
	again, err := os.ReadFile(filepath.Join(dir, page.HtmlFile))
	reportstest.Must(t, err)
	if !bytes.Equal(first, again) {
		t.Error("the same records give another page")
	}
}

// What a page shows before a reader opens anything fits on five screens: these parts in this order, and no other. All else is folded, the
// digests last, and a figure that the script draws has its file where no script runs alone.
func TestWhatAPageShowsAtOnce(t *testing.T) {
	const verdict, curve, examples, next = "h1 p.verdict ul ", "p p ", "h2 p div.table ", "h2 ul "
	for _, tc := range []struct {
		name, dir, want string
		words           int
	}{
		{"a selector", reportstest.FakeRun(t, 1), verdict + "p " + curve + "h2 h3 div.table p p " + examples + next, 520},
		{"a policy that writes", fakeAnswers(t, 1), verdict + "p.notice " + curve + "h2 h3 div.table p p div.table p " +
			examples + next, 520},
	} {
		summary, err := record.ReadSummary(tc.dir)
		reportstest.Must(t, err)
		summary.Evaluations, summary.Data.Fingerprint = nil, strings.Repeat("0f", 32)
		summary.Versions["config"] = strings.Repeat("f0", 32)
		reportstest.Must(t, results.WriteSummary(tc.dir, *summary))
		reportstest.Must(t, RebuildReport(tc.dir))
		html, err := os.ReadFile(filepath.Join(tc.dir, page.HtmlFile))
		reportstest.Must(t, err)
		_, all, _ := strings.Cut(string(html), "<main>\n")
		all, _, _ = strings.Cut(all, "</main>")
		all = regexp.MustCompile(`(?s)<noscript>.*?</noscript>`).ReplaceAllString(all, "")
		shown, folded, _ := strings.Cut(all, "<details>\n")
		if got := outline(shown); got != tc.want {
			t.Errorf("%s: the page shows\n%s, want\n%s", tc.name, got, tc.want)
		}
		words := len(strings.Fields(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(shown, " ")))
		if rows := strings.Count(shown, "<tr>"); words > tc.words || words < tc.words/3 || rows > 25 {
			t.Errorf("%s: %d words, want at most %d; %d rows, want at most 25", tc.name, words, tc.words, rows)
		}
		if n := strings.Count(shown, "data-plot="); n != 1 || strings.Contains(all, "<svg") {
			t.Errorf("%s: %d curves are shown, want 1, and no figure besides", tc.name, n)
		}
		if rest := outline(regexp.MustCompile(`(?s)<details>.*?</details>`).ReplaceAllString("<details>\n"+folded, "")); rest != "" {
			t.Errorf("%s: below the first fold the page shows %s", tc.name, rest)
		}
		last := strings.LastIndex(all, "<details>")
		if digests := regexp.MustCompile(`[0-9a-f]{40,}`).FindAllStringIndex(all, -1); len(digests) != 2 || digests[0][0] < last {
			t.Errorf("%s: digests at %v, want two in the last section, at %d", tc.name, digests, last)
		}
		if !strings.Contains(string(html), "<nav aria-label=\"Contents\">\n<details>") {
			t.Errorf("%s: the contents are open", tc.name)
		}
	}
}

// The band of a run's first curve is Student's interval where the scores of single questions are recorded, t(0.975, 3) = 3.1824 standard
// errors to either side; between such points its width follows a straight line, behind the last it stays.
func TestBandOfARun(t *testing.T) {
	of := func(policy, phase string, epoch int, scores ...float64) record.Evaluation {
		return record.Evaluation{Split: "val", Metric: "reward", Policy: policy, Phase: phase, Epoch: epoch, Scores: scores}
	}
	run := &record.Run{Evaluations: []record.Evaluation{of("similarity", "", 0, 9, -9, 9, -9), of("init", "init", 0, 0.2, 0.2, 0.2, 0.2),
		of("best", "rce", 1, 9, -9, 9, -9), of("rce", "rce", 2, 0.2, 0.3, 0.5, 0.6)}}
	for epoch, score := range []float64{0.3, 0.4, 0.5} {
		run.Epochs = append(run.Epochs, record.Row{Phase: "rce", Epoch: epoch + 1, GlobalStep: 10 * (epoch + 1),
			Fields: map[string]any{"val_reward": score}})
	}
	got := curveOf(run, "reward")
	half := 3.182446 * math.Sqrt(0.1/3/4) // deviations of 0.4: 0.04, 0.01, 0.01 and 0.04
	want := []float64{0.2, 0.2, 0.3 - half/2, 0.3 + half/2, 0.4 - half, 0.4 + half, 0.5 - half, 0.5 + half}
	c := got.Epochs.Series["val_reward"]
	for i := range c.Mean {
		if math.Abs(c.Low[i]-want[2*i]) > 1e-6 || math.Abs(c.High[i]-want[2*i+1]) > 1e-6 {
			t.Errorf("step %d: %g to %g, want %g to %g", got.Epochs.Steps[i], c.Low[i], c.High[i], want[2*i], want[2*i+1])
		}
	}
	if steps := got.Epochs.Steps; !slices.Equal(steps, []int64{0, 10, 20, 30}) {
		t.Errorf("steps %v", steps)
	}
}

// outline names the elements of a page's first level with their classes.
func outline(html string) string {
	var out strings.Builder
	depth := 0
	for _, m := range regexp.MustCompile(`<(/?)(h[1-6]|p|ul|ol|div|pre|details)\b(?:[^>]*class="(\w+)[^"]*")?[^>]*>`).FindAllStringSubmatch(html, -1) {
		if m[1] != "" {
			depth--
			continue
		}
		if depth == 0 {
			out.WriteString(strings.TrimSuffix(m[2]+"."+m[3], ".") + " ")
		}
		depth++
	}
	return out.String()
}
