package runreport

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"fulcrum/internal/testkit/reportstest"
	"fulcrum/reports/page"
)

// A page holds its plots, asks for nothing from elsewhere, and is the same every time.
func TestPageStandsAlone(t *testing.T) {
	dir := reportstest.HonestRun(t, RebuildReport)
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
	for _, want := range []string{"<title>honest</title>", `<p class="verdict">`, `<a href="#results">Results</a>`,
		`<td class="word same-scores">`, "prefers-color-scheme: dark", "@media print"} {
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
