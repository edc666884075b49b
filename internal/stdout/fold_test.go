package stdout

import "testing"

// Lines are broken at spaces and behind bars; a word that is too long stays whole.
func TestFold(t *testing.T) {
	for _, tc := range []struct {
		width, indent int
		text, want    string
	}{
		{0, 2, "a b  c", "a b  c"}, {3, 0, "ab c défg hi", "ab\nc\ndéfg\nhi"}, {5, 1, "ab cd efg", "ab cd\n efg"}, {4, 0, "a|bc|d", "a|\nbc|d"},
	} {
		if got := Fold(tc.text, tc.width, tc.indent); got != tc.want {
			t.Errorf("Fold(%q, %d, %d) = %q, want %q", tc.text, tc.width, tc.indent, got, tc.want)
		}
	}
}
