package jsonwords

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

type Shared struct {
	Temperature float64 `json:"temperature"`
}

// textFile and file stand for a package's own structs, whose names begin small.
type textFile struct {
	Width int `json:"intermediate_size"`
}

type file struct {
	textFile
	Name string `json:"file"`
}

func TestErrors(t *testing.T) {
	type inner struct {
		Sizes []int `json:"sizes"`
	}
	var v struct {
		Shared
		Inner inner `json:"inner"`
		On    bool  `json:"on"`
		file
		Tokenizer file            `json:"tokenizer"`
		Parts     []file          `json:"parts"`
		Named     map[string]file `json:"named"`
		Left      *int            `json:"left"`
	}
	for text, want := range map[string]string{
		`{"temperature": "hot"}`:                 "temperature: got a JSON string, want a number",
		`{"inner": {"sizes": 3}}`:                "inner.sizes: got a JSON number, want a list",
		`{"inner": []}`:                          "inner: got a JSON array, want a object",
		`{"on": "yes"}`:                          "on: got a JSON string, want true or false",
		`{"inner": {"sizes": [1.5]}}`:            "inner.sizes: got a JSON number 1.5, want a whole number",
		`[1]`:                                    "got a JSON array, want a object",
		`{"intermediate_size": "x"}`:             "intermediate_size: got a JSON string, want a whole number",
		`{"file": 3}`:                            "file: got a JSON number, want a text (in quotes)",
		`{"tokenizer": {"file": true}}`:          "tokenizer.file: got a JSON bool, want a text",
		`{"parts": [{"intermediate_size": []}]}`: "parts.intermediate_size: got a JSON array, want a whole number",
		`{"named": {"a": {"file": {}}}}`:         "named.file: got a JSON object, want a text",
		`{"left": "2"}`:                          "left: got a JSON string, want a whole number",
		`{"temperature": -Infinity}`:             "byte 18: JSON has no NaN, Infinity or None: want a number or null",
		`{"on": tru }`:                           "byte 11: invalid character ' ' in literal true",
	} {
		err := Unmarshal([]byte(text), &v)
		if err == nil || !strings.HasPrefix(err.Error(), strings.ReplaceAll(want, "a object", "an object")) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if err := Unmarshal([]byte(`{"temperature": 0.5}`), &v); err != nil || v.Temperature != 0.5 {
		t.Errorf("%v, %v", v, err)
	}
	if other := errors.New("other"); worded(other, &v) != other {
		t.Error("another error does not stay as it is")
	}
	d := json.NewDecoder(strings.NewReader(`{"on": true}{"on": 1}{"on": `))
	for _, want := range []string{"", "on: got a JSON number, want true or false", "the JSON ends in the middle of a value"} {
		if err := Decode(d, &v); (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("decoder: %v, want %q", err, want)
		}
	}
}

func TestCheckUnicode(t *testing.T) {
	for text, want := range map[string]string{
		`{"a": "é \ud83d\ude00 \\ud800 \ufffd \u00e9\\"}`: "<nil>",
		"{\"a\": \"caf\xe9\"}":                            "not UTF-8: save the file in that encoding",
		"\xff\xfe{":                                       "not UTF-8: save the file in that encoding",
		`"\ud83d\ud83d\ude00"`:                            `\ud83d is half of a character: want both halves, as in \ud83d\ude00`,
		`"\\\uDE00"`:                                      `\uDE00 is half of a character: want both halves, as in \ud83d\ude00`,
		`"\ud800`:                                         `\ud800 is half of a character: want both halves, as in \ud83d\ude00`,
		`\`:                                               "<nil>", // no JSON: decoding says so
	} {
		if err := CheckUnicode([]byte(text)); fmt.Sprint(err) != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
