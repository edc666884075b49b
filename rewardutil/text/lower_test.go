package text

import "testing"

// The values are those of Python 3.11's str.lower().
func TestLower(t *testing.T) {
	for _, tc := range [][2]string{
		{"ΣΟΦΟΣ ΟΔΟΣ", "σοφος οδος"}, {"Σ", "σ"}, {"ΑΣ.", "ας."}, {"Α.Σ", "α.ς"}, {"Α.Σ.Α", "α.σ.α"}, {"ΑΣΑ", "ασα"}, {"ΑΣ'Σ", "ασ'ς"},
		{"AΣ\u0301", "aς\u0301"}, {"A\u0301Σ", "a\u0301ς"}, {"Σ\u0301A", "σ\u0301a"}, {"İΣ", "i\u0307ς"}, {"Σİ", "σi\u0307"},
		{"1Σ", "1σ"}, {"aΣ1", "aς1"}, {"AΣ\u00ad", "aς\u00ad"}, {"ʰΣ", "ʰσ"}, {"AΣʰ", "aςʰ"}, {"ªΣ", "ªς"}, {"aΣª", "aσª"},
		{"ǅΣ", "ǆς"}, {"A_Σ", "a_σ"}, {"AΣ’S", "aσ’s"}, {"AΣ՟Σ", "aσ՟ς"}, {"A\u0387Σ", "a\u0387ς"},
		{"A^Σ", "a^ς"}, {"İSTANBUL ÉΣ", "i\u0307stanbul éς"},
	} {
		if got := Lower(tc[0]); got != tc[1] {
			t.Errorf("%q: got %q, want %q", tc[0], got, tc[1])
		}
	}
}
