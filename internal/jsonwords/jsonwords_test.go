package jsonwords

import (
	"errors"
	"strings"
	"testing"
)

type Shared struct {
	Temperature float64 `json:"temperature"`
}

func TestErrors(t *testing.T) {
	type inner struct {
		Sizes []int `json:"sizes"`
	}
	var v struct {
		Shared
		Inner inner `json:"inner"`
		On    bool  `json:"on"`
	}
	for text, want := range map[string]string{
		`{"temperature": "hot"}`:      "temperature: got a JSON string, want a number",
		`{"inner": {"sizes": 3}}`:     "inner.sizes: got a JSON number, want a list",
		`{"inner": []}`:               "inner: got a JSON array, want a object",
		`{"on": "yes"}`:               "on: got a JSON string, want a truth value",
		`{"inner": {"sizes": [1.5]}}`: "inner.sizes: got a JSON number 1.5, want a whole number",
		`[1]`:                         "got a JSON array, want a object",
		`{"on": tru }`:                "byte 11: invalid character ' ' in literal true",
	} {
		err := Unmarshal([]byte(text), &v)
		if err == nil || !strings.HasPrefix(err.Error(), strings.ReplaceAll(want, "a object", "an object")) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if err := Unmarshal([]byte(`{"temperature": 0.5}`), &v); err != nil || v.Temperature != 0.5 {
		t.Errorf("%v, %v", v, err)
	}
	if other := errors.New("other"); Error(other) != other {
		t.Error("another error does not stay as it is")
	}
}
