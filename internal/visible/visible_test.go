package visible

import (
	"encoding/json"
	"testing"
)

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "a b\tc\nd": "a b\tc\nd", "größer 猫 👍": "größer 猫 👍",
		"\x1b[31mred\a": `\x1b[31mred\x07`, "a\rb\x00": `a\x0db\x00`, "\x7f": `\u007f`, "\u009b2J": `\u009b2J`, "\x9b2J": `\x9b2J`,
		"\u202etxt.exe\u202c": `\u202etxt.exe\u202c`, "\u2066\u200f\u061c\u2028": `\u2066\u200f\u061c\u2028`, "é\xc3": `é\xc3`,
	} {
		if got := Text(text); got != want || Text(got) != got {
			t.Errorf("Text(%q) = %q, want %q, the second time too", text, got, want)
		}
	}
}

// A document of JSON stays one, with the same strings in it.
func TestJSONStaysJSON(t *testing.T) {
	all := ""
	for r := range rune(0x2100) {
		all += string(r)
	}
	document, err := json.Marshal(map[string]string{all: all})
	if err != nil {
		t.Fatal(err)
	}
	shown := Text(string(document))
	var back map[string]string
	if err := json.Unmarshal([]byte(shown), &back); err != nil || back[all] != all {
		t.Errorf("%v", err)
	}
	if shown == string(document) {
		t.Error("nothing was shown")
	}
}

func TestWhole(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "a": 1, "é": 2, "\xc3": 0, "aé\xe7\x8c": 3, "a猫": 4, "\xf0\x9f\x91": 0, "👍": 4, "\x9b": 1, "a\xff": 2,
	} {
		if got := Whole([]byte(text)); got != want {
			t.Errorf("Whole(%q) = %d, want %d", text, got, want)
		}
	}
}
