package board

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"testing"
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
	for _, name := range scripts() {
		for _, m := range declaration.FindAllStringSubmatch(string(read(name)), -1) {
			if before, twice := seen[m[1]]; twice {
				t.Errorf("%s and %s both declare %s: they are in one scope", before, name, m[1])
			}
			seen[m[1]] = name
		}
	}
	if len(seen) < 40 {
		t.Errorf("%d declarations: the test looks at nothing", len(seen))
	}
	sums := regexp.MustCompile(`(?m)^([0-9a-f]{64})  (\S+)$`).FindAllStringSubmatch(string(read("vendor/uplot/README.md")), -1)
	for _, m := range sums {
		if sum := sha256.Sum256(read("vendor/uplot/" + m[2])); hex.EncodeToString(sum[:]) != m[1] {
			t.Errorf("%s is not the file that README.md beside it names", m[2])
		}
	}
	if len(sums) != 3 {
		t.Errorf("%d sums, want 3", len(sums))
	}
	if page := string(asset("index.html")); strings.Contains(page, "style=") || strings.Contains(page, "<style") ||
		strings.Contains(page, "<script>") {
		t.Error("the page has styles or scripts of its own: its policy refuses them")
	}
}
