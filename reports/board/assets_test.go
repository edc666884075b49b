package board

import (
	"regexp"
	"strings"
	"testing"

	"fulcrum/reports/webchart"
)

// The page's files are there, the script is one scope without imports, and uPlot is the one that its page names.
func TestAssets(t *testing.T) {
	for _, name := range append(scripts(), "index.html", "board.css", "board.js") {
		if len(asset(name)) < 100 {
			t.Errorf("%s: %d bytes", name, len(asset(name)))
		}
	}
	if found := regexp.MustCompile(`(?m)^(import|export) .*`).Find(asset("board.js")); found != nil {
		t.Errorf("the script holds %q", found)
	}
	seen := map[string]string{}
	declaration := regexp.MustCompile(`(?m)^(?:export )?(?:async )?(?:function|class|const|let) (\w+)`)
	modules := map[string][]byte{"dom.js": webchart.Asset("dom.js"),
		"chart.js": webchart.Asset("chart.js"), "panels.js": webchart.Asset("panels.js")}
	for _, name := range scripts() {
		modules[name] = read(name)
	}
	for name, text := range modules {
		for _, m := range declaration.FindAllStringSubmatch(string(text), -1) {
			if before, twice := seen[m[1]]; twice {
				t.Errorf("%s and %s both declare %s: they are in one scope", before, name, m[1])
			}
			seen[m[1]] = name
		}
	}
	if len(seen) < 40 {
		t.Errorf("%d declarations: the test looks at nothing", len(seen))
	}
	if page := string(asset("index.html")); strings.Contains(page, "style=") || strings.Contains(page, "<style") ||
		strings.Contains(page, "<script>") {
		t.Error("the page has styles or scripts of its own: its policy refuses them")
	}
}
