// Package jsonrecords finds the objects of a JSON array or JSON Lines file without holding them: one pass
// notes where each lies, and a record is read when it is asked for.
//
//	x, err := jsonrecords.Scan("train.jsonl", nil)
//	text, err := x.Read(7)
package jsonrecords

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"fulcrum/beamdata/keycheck"
	"fulcrum/internal/digest"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/regular"
)

// Index is where the records of a file lie: a top-level array of objects, or objects one after the other
// (JSON Lines). It takes 12 bytes a record.
type Index struct {
	regular.Kept
	Digest string // SHA-256 of the file, hex

	start  []int64
	length []int32
}

const (
	chunkSize = 1 << 20
	maxRecord = 256 << 20 // a string that never ends must not read the whole file into memory
)

// Scan reads a file once from end to end and notes where its records are, without decoding them. visit, when
// not nil, sees the bytes of each in order and must not keep them.
func Scan(path string, visit func(record []byte)) (*Index, error) {
	f, kept, err := regular.Keep(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s := &scanner{r: f, hash: digest.New()}
	x := &Index{Kept: kept}
	if err := s.records(func(at int64, record []byte) {
		x.start, x.length = append(x.start, at), append(x.length, int32(len(record)))
		if visit != nil {
			visit(record)
		}
	}); err != nil {
		return nil, fmt.Errorf("%s:%d: record %d: %w", path, LineAt(path, s.base), len(x.start)+1, err)
	}
	x.Digest = s.hash.Hex()
	return x, nil
}

func (x *Index) Len() int { return len(x.start) }

// Read returns the bytes of a record. A file that changed since it was scanned is an error.
func (x *Index) Read(row int64) ([]byte, error) {
	f, err := x.Open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, x.length[row])
	_, err = f.ReadAt(b, x.start[row])
	return b, err
}

// Unknown returns the unknown keys that records have, with the lines where they are first instead of the records' numbers.
func (x *Index) Unknown(keys *keycheck.Keys) []keycheck.Unknown {
	out := keys.Unknown()
	for i := range out {
		out[i].First = x.Line(int64(out[i].First))
	}
	return out
}

// Line returns the number of the line where a record begins, from 1: for messages. It reads the file up to
// there; 0 where it cannot.
func (x *Index) Line(row int64) int { return LineAt(x.Path, x.start[row]) }

// LineAt returns the number of the line of a file that holds the byte at an offset, as Line does.
func LineAt(path string, offset int64) int {
	f, err := regular.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	lines, buf, from := 1, make([]byte, 1<<16), io.LimitReader(f, offset)
	for {
		n, err := from.Read(buf)
		lines += bytes.Count(buf[:n], []byte("\n"))
		if err != nil {
			return lines
		}
	}
}

// scanner walks over the top level of a JSON stream. buf holds what was read and not yet passed.
type scanner struct {
	r    io.Reader
	hash digest.Hash
	buf  []byte
	base int64 // offset of buf[0] in the file
	end  bool  // everything was read
}

// fill reads more; the buffer doubles, so that a long record costs linear time.
func (s *scanner) fill() error {
	if s.end {
		return io.ErrUnexpectedEOF
	}
	n := len(s.buf)
	if n > maxRecord {
		return fmt.Errorf("no end within %d MB: want a closing quote or bracket", maxRecord>>20)
	}
	s.buf = append(s.buf, make([]byte, max(chunkSize, n))...)
	got, err := io.ReadFull(s.r, s.buf[n:])
	s.buf = s.buf[:n+got]
	s.hash.Write(s.buf[n:])
	if s.end = err == io.EOF || err == io.ErrUnexpectedEOF; s.end {
		err = nil
	}
	return err
}

// pass drops the first n bytes.
func (s *scanner) pass(n int) { s.buf, s.base = s.buf[n:], s.base+int64(n) }

// peek returns the next byte that is not white space, or 0 at the end.
func (s *scanner) peek() (byte, error) {
	for {
		for i, c := range s.buf {
			if c != ' ' && c != '\n' && c != '\r' && c != '\t' {
				if s.pass(i); c == 0 {
					return 0, fmt.Errorf("byte %d: a NUL byte", s.base)
				}
				return c, nil
			}
		}
		s.pass(len(s.buf))
		if s.end {
			return 0, nil
		}
		if err := s.fill(); err != nil {
			return 0, err
		}
	}
}

// records calls visit with the place and bytes of every record.
func (s *scanner) records(visit func(at int64, record []byte)) error {
	if err := s.fill(); err != nil {
		return err
	}
	if bytes.HasPrefix(s.buf, []byte("\xef\xbb\xbf")) { // byte order mark
		s.pass(3)
	}
	c, err := s.peek()
	if err != nil {
		return err
	}
	array := c == '['
	if array {
		s.pass(1)
	}
	comma := false // before what comes
	for n := 0; ; n++ {
		if c, err = s.peek(); err != nil {
			return err
		}
		switch {
		case array && c == ']':
			s.pass(1)
			if c, err = s.peek(); err != nil || c == 0 {
				return err
			}
			return fmt.Errorf("byte %d: %q after the array: want nothing more", s.base, c)
		case array && n > 0 && c != ',' && c != 0:
			return fmt.Errorf("byte %d: got %q, want a comma or the closing ]", s.base, c)
		case array && n > 0 && c == ',':
			s.pass(1)
			if c, err = s.peek(); err != nil {
				return err
			}
			comma = true
		}
		switch {
		case c == '{':
		case comma && c == ']':
			return fmt.Errorf("byte %d: a comma stands before the closing ]: remove it", s.base)
		case c == 0:
			if array {
				return errors.New("the file ends within its array: want ]")
			}
			return nil
		default:
			return fmt.Errorf("byte %d: got %q, want { (a file is a list of objects, or one object a line)", s.base, c)
		}
		length, err := s.object()
		if err == nil {
			err = jsonwords.CheckUnicode(s.buf[:length])
		}
		if err != nil {
			return err
		}
		visit(s.base, s.buf[:length])
		s.pass(length)
	}
}

// object returns the length of the object that starts at buf[0], reading as far as needed.
func (s *scanner) object() (int, error) {
	var w walker
	for {
		end, err := w.walk(s.buf)
		if err != nil {
			s.pass(w.at)
			return 0, fmt.Errorf("byte %d: %w", s.base, err)
		}
		if end > 0 {
			return end, nil
		}
		if err := s.fill(); err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				what := "file"
				if _, next, _ := bytes.Cut(s.buf, []byte("\n")); bytes.HasPrefix(bytes.TrimSpace(next), []byte("{")) {
					what = "line"
				}
				return 0, fmt.Errorf("the %s ends within the record", what)
			}
			return 0, err
		}
	}
}

// walker finds the end of an object; it goes on where it stopped when more bytes are there.
type walker struct {
	at       int
	open     []byte // the closing brackets that are still to come, innermost last
	inString bool
}

// walk returns where the object that starts at b[0] ends, 0 where b is too short.
func (w *walker) walk(b []byte) (end int, err error) {
	for w.at < len(b) {
		if w.inString {
			text, _, closed := bytes.Cut(b[w.at:], []byte{'"'})
			if n := bytes.IndexByte(text, '\n'); n >= 0 {
				w.at += n
				return 0, errors.New("the line ends within a text")
			}
			if w.at += len(text); !closed {
				return 0, nil
			}
			w.at++
			w.inString = Escaped(b, w.at-1)
			continue
		}
		switch c := b[w.at]; c {
		case '"':
			w.inString = true
		case '{', '[':
			w.open = append(w.open, c+2) // in ASCII the closing bracket is two further
		case '}', ']':
			last := len(w.open) - 1
			if w.open[last] != c {
				return 0, fmt.Errorf("got %q, want %q first", c, w.open[last])
			}
			if w.open = w.open[:last]; last == 0 {
				return w.at + 1, nil
			}
		}
		w.at++
	}
	return 0, nil
}

// Escaped reports an odd number of backslashes before b[at].
func Escaped(b []byte, at int) bool {
	n := 0
	for at-1-n >= 0 && b[at-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}
