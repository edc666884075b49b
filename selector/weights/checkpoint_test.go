package weights

import "testing"

// TestPortable: metadata does not say where a model was once loaded from, and keeps numbers as they were written.
func TestPortable(t *testing.T) {
	for raw, want := range map[string]string{
		`{"_name_or_path": "/home/someone/model", "rope_theta": 1000000.0, "a": {"b": [1, 2]}}`: `{"a":{"b":[1,2]},"rope_theta":1000000.0}`,
		`[1, 2]`:   `[1,2]`,
		`not json`: `not json`,
	} {
		if got := Portable([]byte(raw)); got != want {
			t.Errorf("Portable(%s) = %s, want %s", raw, got, want)
		}
	}
}
