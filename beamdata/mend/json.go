package mend

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"fulcrum/beamdata/conversation"
	"fulcrum/beamdata/icl"
	"fulcrum/beamdata/jsonrecords"
	"fulcrum/beamdata/jsonstream"
	"fulcrum/beamdata/texts"
	"fulcrum/internal/regular"
)

// What is mended, worded as what is done; %d is the number of records.
const (
	mark    = "byte order mark removed"
	wrapped = "records taken out of the object around them"
	quoted  = "string ids made numbers (records: %d)"
	bare    = "single values put into lists (records: %d)"
	flat    = "single beams put into lists of beams (records: %d)"
)

// lists are the keys whose values are lists, by the number of objects around them: 1 in a record, 2 in a trajectory.
var lists = map[string]int{"id_list": 1, "score_list": 1, "candidate_pool_ids": 1, "pointer_candidates": 1, "pointer": 2,
	"pointer_global": 2, "pointer_pos": 2, "conversations": 1, "messages": 1, "completions": 1, "answers": 1}

// edit puts text in the place of some bytes, in a record counted from 1; 0: around them.
type edit struct {
	what     string
	record   int
	from, to int64
	text     string
}

// pass reads a JSON file and notes its edits, in order.
type pass struct {
	*writer
	text    []byte
	s       *jsonstream.Scanner
	edits   []edit
	refused map[string]string // what has more than one reading, with the reason

	keys   []string         // of the first record; nil: an object of queries
	inner  []string         // the same, inside of an object around all
	seen   map[int64]string // keys of queries by their numbers
	record int
	isFlat bool // the record's id_list is one beam
	scores int  // of the record
}

// json copies a JSON file and mends it. The file is held in memory.
func (c *writer) json(at, to string) error {
	text, err := regular.ReadFile(at)
	if err != nil {
		return err
	}
	p := &pass{writer: c, text: text, s: jsonstream.New(bytes.NewReader(text)), refused: map[string]string{}, seen: map[int64]string{}}
	if bytes.HasPrefix(text, []byte("\xef\xbb\xbf")) {
		p.edit(mark, 0, 3, "")
	}
	name, top := filepath.Base(at), c.top
	if p.keys, err = jsonrecords.FirstKeys(at); err == nil {
		err = p.read()
	}
	if err != nil {
		c.said = append(c.said, fmt.Sprintf("left as it is: %s: not looked through: %v", name, err))
	}
	ours := p.keys == nil || conversation.Fits(p.inner) || texts.Fits(p.inner) || icl.Fits(p.inner) || slices.Contains(p.inner, "id_list")
	if err != nil || !ours {
		c.top = top // its ids say nothing about tables
	}
	var out bytes.Buffer
	out.Grow(len(text))
	done := int64(0)
	records, last := map[string]int{}, map[string]int{}
	for _, e := range p.edits {
		if p.refused[e.what] != "" || e.what != mark && (err != nil || !ours) {
			continue
		}
		if records[e.what] == 0 || last[e.what] != e.record {
			records[e.what], last[e.what] = records[e.what]+1, e.record
		}
		out.Write(text[done:e.from])
		out.WriteString(e.text)
		done = e.to
	}
	out.Write(text[done:])
	var whats []string
	for _, what := range []string{mark, wrapped, quoted, bare, flat} {
		if n := records[what]; n > 0 {
			whats = append(whats, strings.ReplaceAll(what, "%d", fmt.Sprint(n)))
		}
	}
	if len(whats) > 0 {
		c.said = append(c.said, fmt.Sprintf("mended %s: %s", name, strings.Join(whats, "; ")))
	}
	for _, what := range slices.Sorted(maps.Keys(p.refused)) {
		c.said = append(c.said, fmt.Sprintf("left as it is: %s: %s", name, p.refused[what]))
	}
	return c.write(to, &out)
}

func (p *pass) edit(what string, from, to int64, text string) {
	p.edits = append(p.edits, edit{what, p.record, from, to, text})
}

// within matches an object of queries inside of another object.
var within = regexp.MustCompile(`^\x{FEFF}?\s*\{\s*"[^"]*[^"\d][^"]*"\s*:\s*\{\s*"\d+"\s*:`)

// read goes over an object of queries, a list of records, records one a line, {"data": [{…}, …]} or {"data": {"0": {…}, …}}.
func (p *pass) read() (err error) {
	switch isList := p.s.Peek() == '['; {
	case isList:
		err = p.s.List(p.entry)
	case p.keys == nil && !within.Match(p.text):
		err = p.s.Object(p.query)
	case p.keys == nil || len(p.keys) == 1 && !conversation.Fits(p.keys):
		done, n := p.s.Offset(), 0 // behind what is taken out; values
		err = p.s.Object(func(key []byte) (err error) {
			c := p.s.Peek()
			if n++; n > 1 {
				p.refused[wrapped] = fmt.Sprintf("%q stands beside the queries", key)
			}
			if n > 1 || c != '[' && c != '{' {
				return p.s.Skip()
			}
			p.edit(wrapped, done, p.s.Offset(), "")
			if c == '[' {
				err = p.s.List(p.entry)
			} else {
				err = p.s.Object(p.query)
			}
			done = p.s.Offset()
			return err
		})
		p.edit(wrapped, done, p.s.Offset(), "")
	default:
		for p.s.Peek() != 0 && err == nil {
			err = p.entry()
		}
	}
	return cmp.Or(err, p.s.Done())
}

// query reads an entry of a beam file behind its key.
func (p *pass) query(key []byte) error {
	text, end := string(key), int64(bytes.LastIndexByte(p.text[:p.s.Offset()], '"'))
	n, ok := p.id(text)
	if p.s.Peek() != '{' || !ok {
		return p.s.Skip()
	}
	if other := p.seen[n]; other != "" && other != text {
		p.refused[quoted] = fmt.Sprintf("the ids %q and %q would both be %d", other, text, n)
	}
	p.seen[n] = text
	if !bytes.HasSuffix(p.text[:end], []byte(`"`+text)) {
		p.refused[quoted] = fmt.Sprintf("the id %q is written with escapes", text)
	} else if _, err := strconv.ParseInt(text, 10, 64); err != nil {
		p.edits = append(p.edits, edit{quoted, p.record + 1, end - int64(len(text)), end, fmt.Sprint(n)})
	}
	return p.entry()
}

// id is the number in a text: 17, " 017", 17.0.
func (p *pass) id(text string) (n int64, ok bool) {
	text, _ = strings.CutSuffix(strings.TrimSpace(text), ".0")
	n, err := strconv.ParseInt(text, 10, 64)
	if err == nil {
		p.top = max(p.top, n)
	}
	return n, err == nil
}

// entry reads a record.
func (p *pass) entry() error {
	p.record, p.isFlat, p.scores = p.record+1, false, 0
	err := p.value("", 0, 0)
	if p.isFlat && p.scores != 1 {
		p.refused[flat] = fmt.Sprintf("record %d: id_list is one list of ids beside %d scores: which of them make a beam?", p.record, p.scores)
	}
	return err
}

// value reads the value of a key inside of so many objects and, from there, lists.
func (p *pass) value(key string, objects, depth int) error {
	c, from := p.s.Peek(), p.s.Offset()
	isList, beams := objects > 0 && lists[key] == objects, key == "id_list" && depth == 0
	isID := isList && slices.Contains([]string{"id_list", "candidate_pool_ids", "pointer", "pointer_global"}, key)
	switch {
	case isList && depth == 0 && c != '[' && c != 'n':
		p.edit(bare, from, from, "[")
		err := p.value(key, objects, 1)
		p.edit(bare, p.s.Offset(), p.s.Offset(), "]")
		return err
	case isList && c == '[':
		first := beams
		err := p.s.List(func() error {
			if first && p.s.Peek() != '[' {
				p.isFlat = true
				p.edit(flat, from, from, "[")
			}
			first = false
			return p.value(key, objects, depth+1)
		})
		if beams && p.isFlat {
			p.edit(flat, p.s.Offset(), p.s.Offset(), "]")
		}
		return err
	case c == '{' && (objects == 0 || key == "pointer_candidates"):
		return p.s.Object(func(key []byte) error {
			if p.record == 1 && objects == 0 {
				p.inner = append(p.inner, string(key))
			}
			return p.value(string(key), objects+1, 0)
		})
	case isID && c == '"':
		text, err := p.s.String()
		if n, ok := p.id(text); ok && err == nil {
			p.edit(quoted, from, p.s.Offset(), fmt.Sprint(n))
		}
		return err
	case isID && c >= '0' && c <= '9':
		x, err := p.s.Number()
		p.top = max(p.top, int64(x))
		return err
	case key == "score_list":
		p.scores++
	}
	return p.s.Skip()
}
