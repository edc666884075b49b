package configs

import "strings"

// Interpolations, by OmegaConf's grammar:
//
//	text          : literal text with "${…}" anywhere; \${ is a literal ${
//	interpolation : "${" (node | resolver) "}"
//	node          : "."* key (("." key) | ("[" key "]"))*
//	resolver      : name ("." name)* ":" (element ("," element)*)?
//
// Keys, names and arguments may themselves be ${…}.

// template is a parsed text with interpolations.
type template struct{ parts []part }

// part is a literal, a node interpolation or a resolver call.
type part struct {
	lit  string
	node *nodeRef
	call *resolverCall
}

type nodeRef struct {
	up   int // leading dots: 0 = from the root, 1 = sibling, 2 = parent's sibling
	keys []refKey
}

type refKey struct {
	text    string
	ref     *part // a key that is ${…}
	bracket bool  // written as [key]
}

type resolverCall struct {
	name []refKey
	args []*elem
}

// literal appends text, joining it to a literal before it.
func (t *template) literal(s string) {
	if s == "" {
		return
	}
	if n := len(t.parts); n > 0 && t.parts[n-1].node == nil && t.parts[n-1].call == nil {
		t.parts[n-1].lit += s
		return
	}
	t.parts = append(t.parts, part{lit: s})
}

func (t *template) isText() bool {
	return len(t.parts) == 0 || len(t.parts) == 1 && t.parts[0].node == nil && t.parts[0].call == nil
}

// text is the content of a template without interpolations.
func (t *template) text() string {
	if len(t.parts) == 0 {
		return ""
	}
	return t.parts[0].lit
}

// single returns the only part when it is an interpolation: its value keeps its type. t may be nil.
func (t *template) single() *part {
	if t != nil && len(t.parts) == 1 && !t.isText() {
		return &t.parts[0]
	}
	return nil
}

// parseTemplate parses text that contains "${".
func parseTemplate(s string) (*template, error) {
	p := &valueParser{s: s, nested: true}
	t := &template{}
	for p.pos < len(s) {
		i := strings.Index(s[p.pos:], "${")
		if i < 0 {
			t.literal(s[p.pos:])
			break
		}
		slashes := 0
		for slashes < i && s[p.pos+i-1-slashes] == '\\' {
			slashes++
		}
		t.literal(s[p.pos:p.pos+i-slashes] + strings.Repeat(`\`, slashes/2))
		p.pos += i
		if slashes%2 == 1 {
			t.literal("${")
			p.pos += 2
			continue
		}
		ref, err := p.interpolation()
		if err != nil {
			return nil, errorf("interpolation in %s: %v", clip(s), err)
		}
		t.parts = append(t.parts, *ref)
	}
	return t, nil
}

// interpolation parses "${…}" at the current position.
func (p *valueParser) interpolation() (*part, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, p.errorf(p.pos, "nested deeper than %d", maxDepth)
	}
	defer func() { p.depth-- }()
	start := p.pos
	p.pos += 2
	p.skipBlanks()
	at := func(c byte) bool { return p.pos < len(p.s) && p.s[p.pos] == c }
	ref := &nodeRef{}
	for ; at('.'); p.pos++ {
		ref.up++
	}
	brackets := false
	for first := true; first || at('[') || at('.'); first = false {
		bracket := at('[')
		if bracket || !first {
			p.pos++
		}
		k, err := p.refKey(start)
		if err != nil {
			return nil, err
		}
		if bracket {
			if !at(']') {
				return nil, p.errorf(p.pos, `want "]"`)
			}
			p.pos++
			k.bracket, brackets = true, true
		}
		ref.keys = append(ref.keys, k)
	}
	p.skipBlanks()
	if p.pos >= len(p.s) {
		return nil, p.errorf(start, `"${" is not closed: want "}"`)
	}
	switch p.s[p.pos] {
	case '}':
		p.pos++
		return &part{node: ref}, nil
	case ':':
		if ref.up == 0 && !brackets {
			p.pos++
			return p.resolverCall(ref.keys)
		}
	}
	return nil, p.errorf(p.pos, `unexpected %q in an interpolation: want "}"`, []rune(p.s[p.pos:])[0])
}

func (p *valueParser) skipBlanks() { p.pos += blanks(p.s[p.pos:]) }

// refKey parses one key: a name, an index or ${…}.
func (p *valueParser) refKey(start int) (refKey, error) {
	if strings.HasPrefix(p.s[p.pos:], "${") {
		ref, err := p.interpolation()
		return refKey{ref: ref}, err
	}
	n := strings.IndexAny(p.s[p.pos:], "\\{}()[]:. \t'\"")
	if n < 0 {
		return refKey{}, p.errorf(start, `"${" is not closed: want "}"`)
	}
	if n == 0 {
		return refKey{}, p.errorf(p.pos, "unexpected %q in an interpolation: want a key", []rune(p.s[p.pos:])[0])
	}
	k := refKey{text: p.s[p.pos : p.pos+n]}
	p.pos += n
	return k, nil
}

// resolverCall parses the arguments behind "name:". An argument left out between commas is "".
func (p *valueParser) resolverCall(name []refKey) (*part, error) {
	call := &resolverCall{name: name}
	for _, k := range name {
		if k.ref == nil && wordLen(k.text) != len(k.text) {
			return nil, p.errorf(p.pos, "%q is not a resolver name", k.text)
		}
	}
	p.skipBlanks()
	var err error
	call.args, err = p.items(tokDictClose, `"," or "}"`)
	return &part{call: call}, err
}
