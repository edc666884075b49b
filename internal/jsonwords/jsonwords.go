// Package jsonwords reads and writes JSON, and says what is wrong with it without Go's names. Whatever tells a user about JSON reads it
// with this package: a test of internal/arrows sees to it.
//
//	err := jsonwords.Unmarshal(raw, &config)     // temperature: got a JSON string, want a number
package jsonwords

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Unmarshal is json.Unmarshal with errors for readers.
func Unmarshal(data []byte, v any) error { return worded(json.Unmarshal(data, v), v) }

// Marshal is json.Marshal for texts that people read too: it does not escape <, > and &.
func Marshal(v any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), err
}

// CheckUnicode says which part of a JSON text stands for no character: encoding/json would put U+FFFD there.
func CheckUnicode(data []byte) error {
	if bytes.HasPrefix(data, []byte("\x1f\x8b")) {
		return errors.New("the file is compressed: unpack it")
	}
	if !utf8.Valid(data) {
		return errors.New("not UTF-8: save the file in that encoding")
	}
	for at := bytes.IndexByte(data, '\\'); at >= 0; at = bytes.IndexByte(data, '\\') {
		data = data[at:]
		width := min(2, len(data))
		if first := escaped(data); utf16.IsSurrogate(first) {
			if utf16.DecodeRune(first, escaped(data[6:])) == utf8.RuneError {
				return fmt.Errorf(`%s is half of a character: want both halves, as in \ud83d\ude00`, data[:6])
			}
			width = 12
		}
		data = data[width:]
	}
	return nil
}

// escaped is the number of the escape \uXXXX that data begins with, 0 where it begins with none.
func escaped(data []byte) rune {
	if len(data) < 6 || data[0] != '\\' || data[1] != 'u' {
		return 0
	}
	code, _ := strconv.ParseUint(string(data[2:6]), 16, 16) // of no number, decoding says so
	return rune(code)
}

// BreaksOff reports whether data is the beginning of a JSON text that goes on, or nothing.
func BreaksOff(data []byte) bool {
	var text json.RawMessage
	err := json.NewDecoder(bytes.NewReader(data)).Decode(&text)
	return err == io.EOF || err == io.ErrUnexpectedEOF
}

// Decode reads the next value of a decoder with errors for readers. The end of the input is io.EOF.
func Decode(d *json.Decoder, v any) error { return worded(d.Decode(v), v) }

// worded words an error of reading into v: a value of the wrong type by its key, damage by its byte. Other errors, and nil,
// stay as they are.
func worded(err error, v any) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		fault := fmt.Sprintf("got a JSON %s, want %s", wrong.Value, kindOf(wrong.Type))
		if key := keyOf(reflect.TypeOf(v), wrong.Field); key != "" {
			fault = key + ": " + fault
		}
		if wrong.Value == "number" && wrong.Type.Kind() == reflect.String {
			fault += " (in quotes)"
		}
		return errors.New(fault)
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		text := strings.TrimPrefix(syntax.Error(), "json: ")
		before, _ := strings.CutSuffix(text, " looking for beginning of value")
		if syntax.Offset > 1 && slices.Contains([]string{"invalid character 'N'", "invalid character 'I'",
			"invalid character 'I' in numeric literal"}, before) { // Python writes them; at its begin it is a text that is no JSON
			text = "JSON has no NaN, Infinity or None: want a number or null"
		}
		return fmt.Errorf("byte %d: %s", syntax.Offset, text)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the JSON ends in the middle of a value: is the file cut short?")
	}
	return err
}

// keyOf returns the keys on the way to a field. Of embedded structs encoding/json names the Go type too: what t knows as
// no key of its own is left out.
func keyOf(t reflect.Type, path string) string {
	var keys []string
	for _, part := range strings.Split(path, ".") {
		for t != nil && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Array || t.Kind() == reflect.Map) {
			t = t.Elem()
		}
		if t == nil || t.Kind() != reflect.Struct { // a type with a reading of its own
			if part != "" {
				keys = append(keys, part)
			}
			continue
		}
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			of := f.Type
			if of.Kind() == reflect.Pointer {
				of = of.Elem()
			}
			if f.Anonymous && name == "" && of.Name() == part {
				t = f.Type
				break
			}
			if name == part || name == "" && !f.Anonymous && strings.EqualFold(f.Name, part) {
				keys, t = append(keys, part), f.Type
				break
			}
		}
	}
	return strings.Join(keys, ".")
}

func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16,
		reflect.Uint32, reflect.Uint64:
		return "a whole number"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.String:
		return "a text"
	case reflect.Pointer:
		return kindOf(t.Elem())
	}
	return "an object"
}
