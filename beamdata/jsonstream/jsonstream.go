// Package jsonstream reads JSON by token, from files of any size.
//
//	s := jsonstream.New(file)
//	err := s.Object(func(key []byte) error { return s.Skip() })
package jsonstream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"unsafe"

	"fulcrum/internal/jsonwords"
)

// Scanner reads JSON from a stream by token, in memory that does not depend on the file's size. It is written by hand
// because encoding/json's token reader would take minutes for the gigabytes of a full VQAv2 beam file. NaN and
// Infinity, which Python writes, are read as numbers: whoever needs a finite number refuses them by name.
type Scanner struct {
	r     io.Reader
	buf   []byte
	pos   int   // next byte in buf
	end   int   // bytes in buf
	mark  int   // start of the current token in buf, kept across refills; -1 = none
	base  int64 // offset of buf[0] in the file
	lines int   // newlines before buf[lined]
	lined int   // ≤ pos
	ioErr error // why reading stopped, if not EOF
}

const (
	scanBuffer = 1 << 18
	maxToken   = 64 << 20 // longest string
	maxNesting = 1000
)

func New(r io.Reader) *Scanner { return NewSized(r, scanBuffer) }

// NewSized returns a scanner that begins with a buffer of so many bytes.
func NewSized(r io.Reader, buffer int) *Scanner {
	return &Scanner{r: r, buf: make([]byte, buffer), mark: -1}
}

// Err returns why reading stopped before the end of the file, or nil.
func (s *Scanner) Err() error { return s.ioErr }

// syntaxError says where a file stops being the JSON that is wanted.
type syntaxError struct {
	line   int
	offset int64
	msg    string
}

func (e *syntaxError) Error() string {
	return fmt.Sprintf("line %d (byte %d): %s", e.line, e.offset, e.msg)
}

// Errorf returns an error with the place that is being read.
func (s *Scanner) Errorf(format string, args ...any) error {
	if s.ioErr != nil {
		return s.ioErr
	}
	return &syntaxError{s.Line(), s.base + int64(s.pos), fmt.Sprintf(format, args...)}
}

// Line returns the number of the line that is being read, from 1.
func (s *Scanner) Line() int {
	s.countLines(s.pos)
	return 1 + s.lines
}

// Offset is where the next byte stands in the file; behind Peek, where the next value begins.
func (s *Scanner) Offset() int64 { return s.base + int64(s.pos) }

// countLines counts the newlines before buf[to].
func (s *Scanner) countLines(to int) {
	if to > s.lined {
		s.lines += bytes.Count(s.buf[s.lined:to], []byte{'\n'})
		s.lined = to
	}
}

// fill reads more bytes behind the current ones; false at the end of the file.
func (s *Scanner) fill() bool {
	keep := s.pos
	if s.mark >= 0 {
		keep = s.mark
		s.mark = 0
	}
	s.countLines(keep)
	s.lined -= keep
	copy(s.buf, s.buf[keep:s.end])
	s.base += int64(keep)
	s.pos -= keep
	s.end -= keep
	if s.end == len(s.buf) {
		if len(s.buf) >= maxToken {
			return false
		}
		s.buf = append(s.buf, make([]byte, len(s.buf))...)
	}
	for {
		n, err := s.r.Read(s.buf[s.end:])
		s.end += n
		if n > 0 {
			return true
		}
		if err != nil {
			if err != io.EOF {
				s.ioErr = err
			}
			return false
		}
	}
}

// byteOrderMark is what Windows' editors put before a text in UTF-8.
var byteOrderMark = []byte("\xef\xbb\xbf")

// Peek skips white space, and a byte order mark at the start of the file, and returns the next byte, 0 at the end of the file.
func (s *Scanner) Peek() byte {
	for {
		for s.pos < s.end {
			switch c := s.buf[s.pos]; c {
			case ' ', '\n', '\t', '\r':
				s.pos++
			case byteOrderMark[0]:
				for s.base == 0 && s.end < len(byteOrderMark) && s.fill() {
				}
				if s.base > 0 || s.pos > 0 || !bytes.HasPrefix(s.buf[:s.end], byteOrderMark) {
					return c
				}
				s.pos += len(byteOrderMark)
			case 0: // it would be the end
				s.ioErr = s.Errorf("a NUL byte")
				return 0
			default:
				return c
			}
		}
		if !s.fill() {
			return 0
		}
	}
}

// Found names the value that begins with c.
func Found(c byte) string {
	switch {
	case c == 0:
		return "the end of the file (is it cut short?)"
	case c == '"':
		return "a string"
	case c == '{':
		return "an object"
	case c == '[':
		return "a list"
	case c == '-' || c >= '0' && c <= '9' || c == 'N' || c == 'I':
		return "a number"
	case c == 't' || c == 'f':
		return "a bool"
	case c == 'n':
		return "null"
	}
	return fmt.Sprintf("%q", c)
}

// Text reads a string; the bytes are valid until the next call.
func (s *Scanner) Text() ([]byte, error) {
	if c := s.Peek(); c != '"' {
		return nil, s.Errorf("found %s, want a string", Found(c))
	}
	s.mark = s.pos
	s.pos++
	escaped := false
	for {
		for s.pos < s.end {
			switch c := s.buf[s.pos]; {
			case c == '"':
				s.pos++
				token := s.buf[s.mark:s.pos]
				s.mark = -1
				if err := jsonwords.CheckUnicode(token); err != nil {
					return nil, s.Errorf("string: %v", err)
				}
				if !escaped {
					return token[1 : len(token)-1], nil
				}
				var out string
				if err := jsonwords.Unmarshal(token, &out); err != nil {
					return nil, s.Errorf("string: %v", err)
				}
				return []byte(out), nil
			case c == '\\':
				escaped = true
				if s.pos+1 >= s.end && !s.fill() {
					s.pos = s.end
					continue
				}
				s.pos += 2
			case c < 0x20:
				s.mark = -1
				return nil, s.Errorf("control character %#02x inside a string", c)
			default:
				s.pos++
			}
		}
		if !s.fill() {
			s.pos = min(s.pos, s.end)
			s.mark = -1
			return nil, s.Errorf("the file ends inside a string")
		}
	}
}

// word returns the bytes of a number, literal or NaN.
func (s *Scanner) word() []byte {
	inside := func(c byte) bool {
		return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '.' || c == '-' || c == '+'
	}
	s.mark = s.pos
	for s.pos < s.end && inside(s.buf[s.pos]) || s.pos == s.end && s.fill() && inside(s.buf[s.pos]) {
		s.pos++
	}
	token := s.buf[s.mark:s.pos]
	s.mark = -1
	return token
}

// Number reads a float; NaN, Infinity and -Infinity are accepted.
func (s *Scanner) Number() (float64, error) {
	_, x, err := s.number()
	return x, err
}

// number returns a number as it stands, until the next read, and its value.
func (s *Scanner) number() ([]byte, float64, error) {
	if c := s.Peek(); Found(c) != "a number" {
		hint := ""
		if c == '"' {
			hint = " (without quotes)"
		}
		return nil, 0, s.Errorf("found %s, want a number%s", Found(c), hint)
	}
	w := s.word()
	switch string(w) {
	case "NaN":
		return w, math.NaN(), nil
	case "Infinity":
		return w, math.Inf(1), nil
	case "-Infinity":
		return w, math.Inf(-1), nil
	}
	if !json.Valid(w) {
		return nil, 0, s.Errorf("%.30q is not a number", w)
	}
	v, err := strconv.ParseFloat(unsafe.String(unsafe.SliceData(w), len(w)), 64)
	if err != nil && !math.IsInf(v, 0) {
		return nil, 0, s.Errorf("%.30q is not a number", w)
	}
	return w, v, nil
}

func (s *Scanner) Integer() (int64, error) {
	if c := s.Peek(); Found(c) != "a number" {
		return 0, s.Errorf("found %s, want an integer", Found(c))
	}
	w := s.word()
	if len(w) < 18 && len(w) > 0 && w[0] != '-' { // the common case
		var v int64
		for _, c := range w {
			if c < '0' || c > '9' {
				return 0, s.Errorf("%.30q is not an integer", w)
			}
			v = 10*v + int64(c-'0')
		}
		if w[0] == '0' && len(w) > 1 {
			return 0, s.Errorf("%.30q is not an integer", w)
		}
		return v, nil
	}
	v, err := strconv.ParseInt(string(w), 10, 64)
	if err != nil {
		return 0, s.Errorf("%.30q is not an integer", w)
	}
	return v, nil
}

// Null consumes a null; false when something else follows.
func (s *Scanner) Null() (bool, error) {
	if s.Peek() != 'n' {
		return false, nil
	}
	if w := s.word(); string(w) != "null" {
		return false, s.Errorf("%.30q is not JSON", w)
	}
	return true, nil
}

func (s *Scanner) Boolean() (bool, error) {
	if c := s.Peek(); c != 't' && c != 'f' {
		return false, s.Errorf("found %s, want true or false", Found(c))
	}
	w := string(s.word())
	if w != "true" && w != "false" {
		return false, s.Errorf("%.30q is not JSON", w)
	}
	return w == "true", nil
}

// List reads [ … ], calling item for every element.
func (s *Scanner) List(item func() error) error { return s.items('[', ']', item) }

// Object reads { … }, calling field for every key; the key is valid until field reads on.
func (s *Scanner) Object(field func(key []byte) error) error {
	return s.items('{', '}', func() error {
		key, err := s.Text()
		if err != nil {
			return err
		}
		if s.pos == s.end || s.buf[s.pos] != ':' { // peek may refill the buffer that holds the key
			key = bytes.Clone(key)
			if c := s.Peek(); c != ':' {
				return s.Errorf("found %s, want ':'", Found(c))
			}
		}
		s.pos++
		return field(key)
	})
}

// items reads what stands between two brackets, calling item for each of the parts between commas.
func (s *Scanner) items(open, end byte, item func() error) error {
	if got := s.Peek(); got != open {
		return s.Errorf("found %s, want %q", Found(got), open)
	}
	if s.pos++; s.Peek() == end {
		s.pos++
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		switch c := s.Peek(); c {
		case ',':
			s.pos++
		case end:
			s.pos++
			return nil
		default:
			return s.Errorf("found %s, want ',' or '%c'", Found(c), end)
		}
	}
}

// Skip reads and drops one value, checking that it is JSON.
func (s *Scanner) Skip() error { return s.skipDepth(0) }

func (s *Scanner) skipDepth(depth int) error {
	if depth > maxNesting {
		return s.Errorf("values nested deeper than %d", maxNesting)
	}
	switch c := s.Peek(); c {
	case '{':
		return s.Object(func([]byte) error { return s.skipDepth(depth + 1) })
	case '[':
		return s.List(func() error { return s.skipDepth(depth + 1) })
	case '"':
		_, err := s.Text()
		return err
	case 'n':
		_, err := s.Null()
		return err
	case 't', 'f':
		_, err := s.Boolean()
		return err
	default:
		_, err := s.Number()
		return err
	}
}

// Done checks that only white space is left.
func (s *Scanner) Done() error {
	switch c := s.Peek(); {
	case c == '{':
		return s.Errorf("found a second JSON object: one holds all queries, by their ids")
	case c != 0 || s.pos < s.end:
		return s.Errorf("found %s after the end of the JSON value", Found(c))
	}
	return s.ioErr
}

// Scalar reads a text or a number as text; null is "".
func (s *Scanner) Scalar() (string, error) {
	if null, err := s.Null(); null || err != nil {
		return "", err
	}
	if s.Peek() == '"' {
		return s.String()
	}
	w, _, err := s.number() // as it stands: a float64 holds no ids beyond 2^53
	return string(w), err
}

// String reads a string and copies it.
func (s *Scanner) String() (string, error) {
	b, err := s.Text()
	return string(b), err
}
