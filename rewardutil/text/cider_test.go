package text

import (
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
)

// TestCIDEr: tokens are those of Stanford's PTBTokenizer and scores those of the public evaluation (scripts/peers/cider.py).
func TestCIDEr(t *testing.T) {
	text, err := os.ReadFile("../testdata/captions.txt")
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		Tokens [][]string
		Items  []struct {
			Caption    string
			References []string
			CIDEr      float64
		}
	}
	golden.JSON(t, "../testdata/cider.json", &want)
	captions := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	if len(captions) != 58 || len(want.Tokens) != len(captions) || len(want.Items) != 40 {
		t.Fatalf("%d captions, %d split, %d items", len(captions), len(want.Tokens), len(want.Items))
	}
	for i, c := range captions {
		if got := PTBTokens(c); !slices.Equal(got, want.Tokens[i]) {
			t.Errorf("%s\ngot  %q\nwant %q", c, got, want.Tokens[i])
		}
	}
	for caption, want := range map[string]string{"İSTANBUL'S ΣΟΦΟΣ.": "i\u0307stanbul 's σοφος", "Un cafe\u0301 noir": "un cafe\u0301 noir"} {
		if got := strings.Join(PTBTokens(caption), " "); got != want {
			t.Errorf("%s: %q, want %q", caption, got, want)
		}
	}
	var items [][][]string
	for _, item := range want.Items {
		items = append(items, fields(item.References...))
	}
	scorer := countDocuments(items)
	top := 0.0
	for _, item := range want.Items {
		got := scorer.scoreTokens(fields(item.Caption)[0], fields(item.References...))
		top = max(top, got)
		if math.Abs(got-item.CIDEr) > 1e-9 { // float64 sums in another order
			t.Errorf("%q: %v, want %v", item.Caption, got, item.CIDEr)
		}
	}
	if top < 1 {
		t.Errorf("no caption scores above %v: nothing is compared", top)
	}
	if got, want := NewCIDEr([][]string{{"A dog."}, {"Two cats!"}}).Score("a dog", []string{"A dog."}), 5.0; math.Abs(got-want) > 1e-9 {
		t.Errorf("its only reference: %v, want %v, of 10 what two of four lengths are", got, want)
	}
	if got := scorer.Score("nothing of the kind", nil); got != 0 {
		t.Errorf("without references: %v", got)
	}
}

func fields(captions ...string) (out [][]string) {
	for _, c := range captions {
		out = append(out, strings.Fields(c))
	}
	return out
}
