package runreport

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"fulcrum/internal/testkit/reportstest"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
)

// The page shows the pictures that the run has kept, at small size. What a foreign file names besides is not opened.
func TestPictures(t *testing.T) {
	dir := reportstest.FakeRun(t, 1)
	jpeg := []byte("\xff\xd8 a small picture")
	name, err := record.KeepPicture(dir, jpeg)
	reportstest.Must(t, err)
	outside := filepath.Join(t.TempDir(), "secret.jpg")
	reportstest.Must(t, os.WriteFile(outside, []byte("SECRET"), 0o644))
	link := "pictures/0123456789abcdef.jpg"
	reportstest.Must(t, os.Symlink(outside, filepath.Join(dir, link)))
	row, err := json.Marshal(record.SampledCompletion{Phase: "grpo", Epoch: 1, Step: 1, Completion: record.Completion{Question: "<image>",
		Text: "red", Pictures: record.Pictures{outside, "pictures/../" + name, link, name, "javascript:alert(1)"}}})
	reportstest.Must(t, err)
	reportstest.Must(t, os.WriteFile(filepath.Join(dir, record.CompletionsFile), append(row, '\n'), 0o644))
	reportstest.Must(t, RebuildReport(dir))
	html, err := os.ReadFile(filepath.Join(dir, page.HtmlFile))
	reportstest.Must(t, err)
	shown := `<span class="picture"><img alt="picture" src="data:image/jpeg;base64,`
	if n := bytes.Count(html, []byte(shown)); n != 1 || !bytes.Contains(html, []byte(shown+base64.StdEncoding.EncodeToString(jpeg)+`"`)) {
		t.Errorf("%d pictures in the page, want the run's own", n)
	}
	for _, hostile := range []string{base64.StdEncoding.EncodeToString([]byte("SECRET")), outside, "javascript:", "pictures/../"} {
		if bytes.Contains(html, []byte(hostile)) {
			t.Errorf("the page holds %q", hostile)
		}
	}
}
