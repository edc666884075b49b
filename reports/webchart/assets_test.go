package webchart

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"testing"
)

// uPlot is the one that its page names.
func TestChartLibraryIsUnchanged(t *testing.T) {
	sums := regexp.MustCompile(`(?m)^([0-9a-f]{64})  (\S+)$`).FindAllStringSubmatch(string(Asset("vendor/uplot/README.md")), -1)
	for _, m := range sums {
		if sum := sha256.Sum256(Asset("vendor/uplot/" + m[2])); hex.EncodeToString(sum[:]) != m[1] {
			t.Errorf("%s is not the file that README.md beside it names", m[2])
		}
	}
	if len(sums) != 3 {
		t.Errorf("%d sums, want 3", len(sums))
	}
}
