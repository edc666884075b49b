package jsonrecords

import (
	"bytes"
	"encoding/json"
)

// Fields calls visit for the keys of an object, with their quotes, and their values' bytes. What is no
// JSON is passed over; decoding the record reports it.
func Fields(record []byte, visit func(key, value []byte)) {
	b := record[1 : len(record)-1]
	for {
		open := bytes.IndexByte(b, '"')
		if open < 0 {
			return
		}
		n := stringEnd(b[open:])
		key := b[open : open+n]
		colon := bytes.IndexByte(b[open+n:], ':')
		if colon < 0 {
			return
		}
		b = b[open+n+colon+1:]
		end := ValueEnd(b)
		visit(key, b[:end])
		b = b[end:]
	}
}

// stringEnd returns the length of the string that starts at b[0], quotes included.
func stringEnd(b []byte) int {
	for at := 1; at < len(b); {
		n := bytes.IndexByte(b[at:], '"')
		if n < 0 {
			break
		}
		if at += n + 1; !Escaped(b, at-1) {
			return at
		}
	}
	return len(b)
}

// ValueEnd returns where the value that starts b ends: at the next comma or closing bracket that is not inside of it.
func ValueEnd(b []byte) int {
	depth := 0
	for at := 0; at < len(b); at++ {
		switch b[at] {
		case '"':
			at += stringEnd(b[at:]) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return at
			}
		case ',':
			if depth == 0 {
				return at
			}
		}
	}
	return len(b)
}

// Wrapped returns the key under which an object holds a list of objects, and how many: {"data": [{…}, {…}]}, a file of
// records inside of one. n is 0 where it holds none.
func Wrapped(record []byte) (name string, n int) {
	Fields(record, func(key, value []byte) {
		value = bytes.TrimSpace(value)
		if n > 0 || len(value) == 0 || value[0] != '[' {
			return
		}
		var items []json.RawMessage
		if json.Unmarshal(value, &items) != nil || len(items) == 0 || len(items[0]) == 0 || items[0][0] != '{' {
			return
		}
		switch k := string(bytes.Trim(key, `"`)); k {
		case "conversations", "messages", "prompt", "completion", "completions", "answers": // what a record has itself
		default:
			name, n = k, len(items)
		}
	})
	return name, n
}
