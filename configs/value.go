package configs

import (
	"fmt"
	"strings"
)

// The value side of the override grammar, which is also the grammar of resolver arguments:
//
//	value    : element ("," element)*                    the second form is a simple choice sweep
//	element  : primitive | "[" … "]" | "{" key ":" element … "}" | name "(" … ")"
//	primitive: QUOTED | (word number true null ${…} one of /-\+.$%*@?| ":" \escape blank)+
//
// A primitive of one token keeps the token's type; several tokens are joined as text.

type elemKind uint8

const (
	scalarElem elemKind = iota
	listElem
	dictElem
	choiceSweep
	rangeSweep
	intervalSweep
	globSweep
	extendElem // extend_list(…)
)

// elem is a parsed element. Function calls have been evaluated.
type elem struct {
	kind  elemKind
	node  *Node       // scalar without interpolation parts
	parts *template   // scalar of a resolver argument that holds ${…}
	quote byte        // scalar: the quote it was written with, 0 = none
	keys  []*Node     // dict
	items []*elem     // list, dict, choice, extend_list
	rng   [3]*elem    // range: start, stop, step; interval: start, end
	glob  [2][]string // glob: include, exclude
	tags  []string    // tag(…)
	plain bool        // choice written as a,b
	cast  string      // interval with int() or float()

	shuffled bool
}

func (e *elem) isSweep() bool { return e.kind >= choiceSweep && e.kind <= globSweep }

func scalarOf(n *Node) *elem { return &elem{kind: scalarElem, node: n} }

// syntaxError is a fault at a byte of the parsed text.
type syntaxError struct {
	pos int
	msg string
}

func (e *syntaxError) Error() string { return fmt.Sprintf("column %d: %s", e.pos+1, e.msg) }

// maxDepth bounds nesting, so that no input can exhaust the stack.
const maxDepth = 200

type valueParser struct {
	s      string
	pos    int
	depth  int
	nested bool // resolver arguments: ${…} is parsed in place, there are no functions
}

func (p *valueParser) errorf(pos int, format string, args ...any) error {
	return &syntaxError{pos, fmt.Sprintf(format, args...)}
}

// value parses the whole text as the right side of an override.
func (p *valueParser) value() (*elem, error) {
	p.pos += blanks(p.s[p.pos:])
	if p.pos == len(p.s) {
		return scalarOf(plainString("")), nil
	}
	first, err := p.element()
	if err != nil {
		return nil, err
	}
	items := []*elem{first}
	for {
		t, n := p.peek()
		if t == tokEnd {
			break
		}
		if t != tokComma {
			return nil, p.unexpected(t, n, "the end")
		}
		p.pos += n
		e, err := p.element()
		if err != nil {
			return nil, err
		}
		items = append(items, e)
	}
	if len(items) == 1 {
		return first, nil
	}
	for _, e := range items {
		if e.isSweep() || e.kind == extendElem {
			return nil, p.errorf(0, "a sweep or extend_list inside a choice: want plain values between the commas")
		}
	}
	return &elem{kind: choiceSweep, items: items, plain: true}, nil
}

func (p *valueParser) unexpected(t token, n int, want string) error {
	switch t {
	case tokEnd:
		return p.errorf(p.pos, "unexpected end: want %s", want)
	case tokBlank:
		return p.errorf(p.pos, "blank after a closed value: want %s", want)
	case tokQuote:
		return p.errorf(p.pos, "unexpected quote: quote the whole value or nothing of it")
	case tokBad:
		r := []rune(p.s[p.pos:])[0]
		return p.errorf(p.pos, "character %q must be quoted", r)
	}
	return p.errorf(p.pos, "unexpected %q: want %s (quote the value if it is text)", strings.TrimSpace(p.s[p.pos:p.pos+n]), want)
}

func (p *valueParser) element() (*elem, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, p.errorf(p.pos, "nested deeper than %d", maxDepth)
	}
	defer func() { p.depth-- }()
	t, n := p.peek()
	switch t {
	case tokQuote:
		return p.quoted()
	case tokListOpen:
		p.pos += n
		return p.list()
	case tokDictOpen:
		p.pos += n
		return p.dict()
	case tokWord:
		if !p.nested {
			save := p.pos
			p.pos += n
			if t2, n2 := p.peek(); t2 == tokParenOpen {
				p.pos += n2
				return p.call(p.s[save:save+n], save)
			}
			p.pos = save
		}
	}
	return p.primitive()
}

func (p *valueParser) list() (*elem, error) {
	e := &elem{kind: listElem}
	if t, n := p.peek(); t == tokListClose {
		p.pos += n
		return e, nil
	}
	for {
		item, err := p.listItem()
		if err != nil {
			return nil, err
		}
		if item.isSweep() || item.kind == extendElem {
			return nil, p.errorf(p.pos, "a sweep inside a list: sweep over whole lists, as in key=[1],[2]")
		}
		e.items = append(e.items, item)
		t, n := p.peek()
		switch t {
		case tokComma:
			p.pos += n
		case tokListClose:
			p.pos += n
			return e, nil
		default:
			return nil, p.unexpected(t, n, `"," or "]"`)
		}
	}
}

// listItem parses an item; in resolver arguments one left out between commas is "".
func (p *valueParser) listItem() (*elem, error) {
	if t, _ := p.peek(); p.nested && (t == tokComma || t == tokListClose) {
		return scalarOf(plainString("")), nil
	}
	return p.element()
}

func (p *valueParser) dict() (*elem, error) {
	e := &elem{kind: dictElem}
	at := map[Key]int{}
	if t, n := p.peek(); t == tokDictClose {
		p.pos += n
		return e, nil
	}
	for {
		k, err := p.dictKey()
		if err != nil {
			return nil, err
		}
		t, n := p.peek()
		if t != tokColon {
			return nil, p.unexpected(t, n, `":" after the key`)
		}
		p.pos += n
		v, err := p.element()
		if err != nil {
			return nil, err
		}
		if v.isSweep() || v.kind == extendElem {
			return nil, p.errorf(p.pos, "a sweep inside a mapping: sweep over whole mappings, as in key={a:1},{a:2}")
		}
		// A key given twice keeps its place and takes the last value. As in Python, 1, 1.0 and true are
		// one key.
		if i, ok := at[k.key().hashed()]; ok {
			e.items[i] = v
		} else {
			at[k.key().hashed()] = len(e.keys)
			e.keys, e.items = append(e.keys, k), append(e.items, v)
		}
		t, n = p.peek()
		switch t {
		case tokComma:
			p.pos += n
		case tokDictClose:
			p.pos += n
			return e, nil
		default:
			return nil, p.unexpected(t, n, `"," or "}"`)
		}
	}
}

func (p *valueParser) dictKey() (*Node, error) {
	start := p.pos
	e, err := p.tokens(func(t token) bool {
		return t == tokWord || t == tokNull || t == tokInt || t == tokFloat || t == tokBool || t == tokChar || t == tokEscape || t == tokBlank
	})
	if err != nil {
		return nil, err
	}
	if e.node.Kind == Null {
		return nil, p.errorf(start, "null as a key: want text, a number or a boolean")
	}
	return e.node, nil
}

func (p *valueParser) primitive() (*elem, error) {
	return p.tokens(func(t token) bool { return t >= tokWord && t <= tokColon })
}

// tokens joins a run of tokens to a primitive; one token keeps its type.
func (p *valueParser) tokens(allowed func(token) bool) (*elem, error) {
	type piece struct {
		tok  token
		text string
		ref  *part
	}
	var run []piece
	for {
		t, n := p.peek()
		if !allowed(t) {
			if len(run) == 0 {
				return nil, p.unexpected(t, n, "a value")
			}
			break
		}
		if t == tokInterp && p.nested {
			ref, err := p.interpolation()
			if err != nil {
				return nil, err
			}
			run = append(run, piece{tok: t, ref: ref})
			continue
		}
		run = append(run, piece{tok: t, text: p.s[p.pos : p.pos+n]})
		p.pos += n
	}
	if !p.nested { // there, only oc.decode can meet blanks at the edges, and they are text
		if len(run) > 1 && run[0].tok == tokBlank {
			run = run[1:]
		}
		if len(run) > 1 && run[len(run)-1].tok == tokBlank {
			run = run[:len(run)-1]
		}
	}
	if len(run) == 1 {
		r := run[0]
		switch r.tok {
		case tokNull:
			return scalarOf(newNull()), nil
		case tokBool:
			return scalarOf(newBool(strings.EqualFold(r.text, "true"))), nil
		case tokInt:
			sign, body := splitSign(strings.ReplaceAll(r.text, "_", ""))
			return scalarOf(intNode(sign, body, 10)), nil
		case tokFloat:
			return scalarOf(parseFloatText(r.text)), nil
		}
	}
	t := &template{}
	hasRef := false
	for _, r := range run {
		switch {
		case r.ref != nil:
			t.parts = append(t.parts, *r.ref)
			hasRef = true
		case r.tok == tokEscape:
			t.literal(unescape(r.text))
		default:
			t.literal(r.text)
		}
	}
	if hasRef {
		return &elem{kind: scalarElem, parts: t}, nil
	}
	return p.textElem(t.text(), 0)
}

// textElem makes a text scalar; ${…} in an override must be well formed already here.
func (p *valueParser) textElem(s string, quote byte) (*elem, error) {
	if p.nested {
		return &elem{node: plainString(s), quote: quote}, nil
	}
	n, err := newString(s)
	if err != nil {
		return nil, p.errorf(p.pos, "%v", err)
	}
	return &elem{node: n, quote: quote}, nil
}

// quoted reads '…' or "…". Backslashes count only directly before the quote or the end.
func (p *valueParser) quoted() (*elem, error) {
	start, q := p.pos, p.s[p.pos]
	p.pos++
	if p.nested {
		t, err := p.quotedTemplate(start, q)
		if err != nil {
			return nil, err
		}
		if t.isText() {
			return &elem{node: plainString(t.text()), quote: q}, nil
		}
		return &elem{parts: t, quote: q}, nil
	}
	var b strings.Builder
	for p.pos < len(p.s) {
		c := p.s[p.pos]
		if c == q {
			p.pos++
			return p.textElem(b.String(), q)
		}
		if c != '\\' {
			b.WriteByte(c)
			p.pos++
			continue
		}
		run := span(p.s[p.pos:], `\`)
		p.pos += run
		if p.pos < len(p.s) && p.s[p.pos] == q {
			b.WriteString(strings.Repeat(`\`, run/2))
			if run%2 == 1 {
				b.WriteByte(q)
				p.pos++
			}
		} else {
			b.WriteString(strings.Repeat(`\`, run))
		}
	}
	return nil, p.errorf(start, "the quote %c is not closed", q)
}
