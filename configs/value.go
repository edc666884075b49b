package configs

import (
	"fmt"
	"strings"

	"fulcrum/internal/program"
	"fulcrum/internal/registry"
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
		hint := "quote the whole value or nothing of it"
		if typed := p.asText(); typed != "" {
			hint += ", " + typed
		}
		return p.errorf(p.pos, "unexpected quote: %s", hint)
	case tokBad:
		r := []rune(p.s[p.pos:])[0]
		meant := registry.DidYouMean(typewriter.Replace(p.s), typewriter.Replace(p.s) != p.s)
		if typed := p.asText(); meant == "" && typed != "" {
			meant = ", within the shell's quotes: " + typed
		}
		return p.errorf(p.pos, "character %q must be quoted%s", r, meant)
	}
	hint := "quote the value if it is text"
	if typed := p.asText(); typed != "" && strings.ContainsAny(p.s, "/ ") {
		hint += ", " + typed
	}
	return p.errorf(p.pos, "unexpected %q: want %s (%s)", strings.TrimSpace(p.s[p.pos:p.pos+n]), want, hint)
}

// asText is the override whose value is text as a whole, as one types it; "" where more than quotes is missing.
func (p *valueParser) asText() string {
	key, value, ok := strings.Cut(p.s, "=")
	quotes := strings.Count(value, "'") + strings.Count(value, `"`)
	if !ok || p.nested || quotes > 1 || strings.HasPrefix(value, "[") || strings.HasPrefix(value, "{") {
		return ""
	}
	return program.Quoted(key + "=" + withQuotes(value, '"'))
}

// AsTyped is an override as a shell takes it, its value in the grammar's quotes where it has to be.
func AsTyped(key, value string) string {
	if o, err := ParseOverride(key + "=" + value); err != nil || o.isSweep() {
		value = withQuotes(value, '"')
	}
	return program.Quoted(key + "=" + value)
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
		items, err := p.items(tokListClose, `"," or "]"`)
		return &elem{kind: listElem, items: items}, err
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
	return p.tokens(func(t token) bool { return t >= tokWord && t <= tokColon }) // a primitive
}

// items parses the items of a list, or the arguments of a resolver, up to the token that closes them. In resolver
// arguments an item left out between commas is "".
func (p *valueParser) items(end token, want string) ([]*elem, error) {
	if t, n := p.peek(); t == end {
		p.pos += n
		return nil, nil
	}
	var out []*elem
	for {
		item := scalarOf(plainString(""))
		if t, _ := p.peek(); !p.nested || t != tokComma && t != end {
			var err error
			if item, err = p.element(); err != nil {
				return nil, err
			}
		}
		if item.isSweep() || item.kind == extendElem {
			return nil, p.errorf(p.pos, "a sweep inside a list: sweep over whole lists, as in key=[1],[2]")
		}
		out = append(out, item)
		if closed, err := p.closes(end, want); closed || err != nil {
			return out, err
		}
	}
}

// closes passes over the comma behind an item, or over the token that ends the items, and reports whether it did end them.
func (p *valueParser) closes(end token, want string) (bool, error) {
	t, n := p.peek()
	if t != tokComma && t != end {
		return false, p.unexpected(t, n, want)
	}
	p.pos += n
	return t == end, nil
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
		// A key given twice keeps its place and takes the last value. As in Python, 1, 1.0 and true are one key.
		if i, ok := at[k.key().hashed()]; ok {
			e.items[i] = v
		} else {
			at[k.key().hashed()] = len(e.keys)
			e.keys, e.items = append(e.keys, k), append(e.items, v)
		}
		if closed, err := p.closes(tokDictClose, `"," or "}"`); closed || err != nil {
			return e, err
		}
	}
}

func (p *valueParser) dictKey() (*Node, error) {
	start := p.pos
	e, err := p.tokens(func(t token) bool { return t >= tokWord && t <= tokBlank })
	if err != nil {
		return nil, err
	}
	if e.node.Kind == Null {
		return nil, p.errorf(start, "null as a key: want text, a number or a boolean")
	}
	return e.node, nil
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

// quoted reads '…' or "…". Backslashes count only directly before the quote, and before ${…} in resolver arguments, which
// may have the same quotes inside.
func (p *valueParser) quoted() (*elem, error) {
	start, quote := p.pos, p.s[p.pos:p.pos+1]
	p.pos++
	t := &template{}
	var text strings.Builder // behind the last part of t
	for p.pos < len(p.s) {
		slashes := span(p.s[p.pos:], `\`)
		p.pos += slashes
		rest := p.s[p.pos:]
		special := ""
		switch {
		case rest == "": // it is not closed
			continue
		case strings.HasPrefix(rest, quote):
			special = quote
		case p.nested && strings.HasPrefix(rest, "${"):
			special = "${"
		default:
			text.WriteString(strings.Repeat(`\`, slashes) + rest[:1])
			p.pos++
			continue
		}
		text.WriteString(strings.Repeat(`\`, slashes/2))
		if slashes%2 == 1 {
			text.WriteString(special)
			p.pos += len(special)
			continue
		}
		t.literal(text.String())
		text.Reset()
		if special == quote {
			p.pos++
			if t.isText() {
				return p.textElem(t.text(), quote[0])
			}
			return &elem{parts: t, quote: quote[0]}, nil
		}
		ref, err := p.interpolation()
		if err != nil {
			return nil, err
		}
		t.parts = append(t.parts, *ref)
	}
	return nil, p.errorf(start, "the quote %s is not closed", quote)
}
