// Package jsonwords reads JSON and says what is wrong with it without Go's names.
//
//	err := jsonwords.Unmarshal(raw, &config)     // temperature: got a JSON string, want a number
package jsonwords

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode"
)

// Unmarshal is json.Unmarshal with errors for readers.
func Unmarshal(data []byte, v any) error { return Error(json.Unmarshal(data, v)) }

// Error words an error of encoding/json: a value of the wrong type by its key, damage by its byte. Other errors, and nil,
// stay as they are.
func Error(err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		fault := fmt.Sprintf("got a JSON %s, want %s", wrong.Value, kindOf(wrong.Type))
		if key := keyOf(wrong.Field); key != "" {
			fault = key + ": " + fault
		}
		return errors.New(fault)
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("byte %d: %s", syntax.Offset, strings.TrimPrefix(syntax.Error(), "json: "))
	}
	return err
}

// keyOf leaves out the names of embedded Go types.
func keyOf(field string) string {
	var keys []string
	for _, part := range strings.Split(field, ".") {
		if part != "" && !unicode.IsUpper(rune(part[0])) {
			keys = append(keys, part)
		}
	}
	return strings.Join(keys, ".")
}

func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Bool:
		return "a truth value"
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.String:
		return "a text"
	}
	return "an object"
}
