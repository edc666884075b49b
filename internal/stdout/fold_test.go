package stdout

import "testing"

// Lines are broken at spaces and behind bars, or between columns; a word that is too long stays whole.
func TestFold(t *testing.T) {
	for _, tc := range []struct {
		width, indent int
		text, want    string
	}{
		{0, 2, "a b  c", "a b  c"}, {3, 0, "ab c défg hi", "ab\nc\ndéfg\nhi"},
		{14, 1, "é 1  kl 2  val 3  kl 4", "é 1  kl 2\n val 3  kl 4"}, {14, 1, "é  one two three", "é  one two\n three"},
		{5, 1, "ab cd efg", "ab cd\n efg"}, {4, 0, "a|bc|d", "a|\nbc|d"},
		{12, 1, "go on: `run resume 'a b'`, or not so", "go on:\n run resume 'a b'\n or not so"},
		{40, 4, "go on: `run resume a`", "go on: `run resume a`"}, {9, 0, "in `a.db` there", "in `a.db`\nthere"},
		{9, 0, "a: `run x 'b`c' y`. `run z`", "a:\n    run x 'b`c' y\n    run z"},
	} {
		if got := Fold(tc.text, tc.width, tc.indent); got != tc.want {
			t.Errorf("Fold(%q, %d, %d) = %q, want %q", tc.text, tc.width, tc.indent, got, tc.want)
		}
	}
}
