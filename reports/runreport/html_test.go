package runreport

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/renderer/html"

	"fulcrum/reports/page"
	"fulcrum/reports/reportstest"
)

// What a page shows is what a library that reads all of markdown makes of the same report.
func TestPagesAgreeWithALibrary(t *testing.T) {
	for _, tc := range []struct{ name, markdown string }{
		{"a report", reportstest.ReadReport(t, reportstest.HonestRun(t, RebuildReport))},
		{"a wide report", func() string {
			dir := reportstest.FakeRun(t, 1)
			reportstest.Must(t, WriteReport(dir))
			return reportstest.ReadReport(t, dir)
		}()},
		{"escapes", "# a\\_b\n\nx \\*y\\* &lt;b> \\[z\\] \\# 2 * 3 * 4, a_b_c, 5 < 6 & 7\n\n- one **two** *three*\n- `a|b` and ``c`d``\n"},
		{"code in cells", "| a | b |\n|---|---:|\n| `x\\|y` | 1 |\n| \\| [n](f/g.txt) | **2** |\n| <br> x<br>y | |\n"},
		{"fences", "````\nred\n```\n<b>\n````\n\ntext\n"},
		{"links", "[a\\_b](c/d%20e.json), [`x`](y), not [a link] (here), **[3](3/x.md)**\n"},
		{"answers of models", "| text |\n|---|\n| " + page.TextCell("a | `b` \\ <c> [d](e) **f** \n g  h", 80) + " |\n| " + page.Plain("a | `b` \\ <c> [d](e) **f** _g_ &amp; h") + " |\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var want bytes.Buffer
			md := goldmark.New(goldmark.WithExtensions(extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute))), goldmark.WithRendererOptions(html.WithUnsafe()))
			reportstest.Must(t, md.Convert([]byte(tc.markdown), &want))
			got, theirs := normal(string(body(page.HTML(tc.markdown, noPlots)))), normal(want.String())
			for i := range max(len(got), len(theirs)) {
				if i >= len(got) || i >= len(theirs) || got[i] != theirs[i] {
					t.Fatalf("line %d:\n got %q\nwant %q", i, at(got, i), at(theirs, i))
				}
			}
			if len(got) < 1 {
				t.Errorf("only %d lines", len(got))
			}
		})
	}
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "nothing"
}

func noPlots(string) ([]byte, error) { return nil, errors.New("none") }

func body(page []byte) []byte {
	_, rest, _ := bytes.Cut(page, []byte("<main>\n"))
	rest, _, _ = bytes.Cut(rest, []byte("</main>"))
	return rest
}

// normal leaves out what only our pages have: anchors, classes, boxes around tables, pictures.
func normal(s string) []string {
	for _, r := range []struct{ pattern, to string }{
		{` (id|class)="[^"]*"`, ""}, {`</?div>\n?`, ""}, {`<img [^>]*>|<em>plots/\S* is not there.</em>`, "IMAGE"}, {`report\.html`, "report.md"}, {`&#34;`, "&quot;"}, {`&#39;`, "'"}, {"<tbody>\n</tbody>\n", ""}, {`%20`, " "},
	} {
		s = regexp.MustCompile(r.pattern).ReplaceAllString(s, r.to)
	}
	return strings.Split(strings.TrimSpace(s), "\n")
}

// A page holds its plots, asks for nothing from elsewhere, and is the same every time.
func TestPageStandsAlone(t *testing.T) {
	dir := reportstest.HonestRun(t, RebuildReport)
	first, err := os.ReadFile(filepath.Join(dir, page.HtmlFile))
	reportstest.Must(t, err)
	if n := bytes.Count(first, []byte("<svg")); n != 7 {
		t.Errorf("%d plots in the page, want 7", n)
	}
	for _, elsewhere := range []string{"<script", "<link", "src=\"http", "url(", "@import", "is not there"} {
		if bytes.Contains(first, []byte(elsewhere)) {
			t.Errorf("the page holds %q", elsewhere)
		}
	}
	for _, want := range []string{"<title>honest</title>", `<p class="verdict">`, `<a href="#results">Results</a>`, `<td class="word same-scores">`, "prefers-color-scheme: dark", "@media print"} {
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
