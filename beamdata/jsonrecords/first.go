package jsonrecords

import (
	"bufio"
	"encoding/json"
	"strconv"

	"fulcrum/internal/regular"
)

// FirstKeys returns the keys of the first record of a list or of JSON lines; nil for an object of queries by id.
func FirstKeys(path string) ([]string, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := bufio.NewReader(f)
	if start, _ := r.Peek(3); string(start) == "\xef\xbb\xbf" { // byte order mark
		r.Discard(3)
	}
	d := json.NewDecoder(r)
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	list := t == json.Delim('[')
	if list {
		t, err = d.Token()
	}
	keys := []string{}
	if err != nil || t != json.Delim('{') {
		return keys, err
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return keys, nil
		}
		key, _ := t.(string)
		if _, err := strconv.ParseInt(key, 10, 64); err == nil || key == "_meta" {
			return nil, nil
		}
		keys = append(keys, key)
		var value json.RawMessage
		if d.Decode(&value) != nil {
			break
		}
		if len(keys) == 1 && !list && value[0] == '{' { // queries under keys that are no numbers
			return nil, nil
		}
	}
	return keys, nil
}
