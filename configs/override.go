package configs

import "strings"

// overrideOp is what an override does: k=v, +k=v, ++k=v or ~k.
type overrideOp uint8

const (
	opChange overrideOp = iota
	opAdd
	opForce
	opDelete
)

var opPrefix = [...]string{"", "+", "++", "~"}

// Override is one parsed argument of the command line.
type Override struct {
	Op         overrideOp
	Key        string // dotted key, or group with slashes
	Package    string // behind @
	HasPackage bool
	Text       string // as typed

	value *elem  // nil: ~key without a value
	file  Origin // where a file gives it; empty for the command line
}

// where is the place to name in errors about the override.
func (o *Override) where() Origin {
	if o.file.Source != "" {
		return o.file
	}
	return Origin{Source: o.Text}
}

// ParseOverride parses one override. Errors carry the override and the column.
//
//	override : key "=" value? | "~" key ("=" value?)? | "+" key "=" value? | "++" key "=" value?
//	key      : (package | ID ("/" ID)+) ("@" package)?
func ParseOverride(text string) (*Override, error) {
	o := &Override{Text: text}
	fail := func(pos int, msg string) (*Override, error) {
		return nil, errorAt(Origin{Source: text}, "Error parsing override: column %d: %s", pos+1, msg)
	}
	pos := 0
	switch {
	case strings.HasPrefix(text, "~"):
		o.Op, pos = opDelete, 1
	case strings.HasPrefix(text, "++"):
		o.Op, pos = opForce, 2
	case strings.HasPrefix(text, "+"):
		o.Op, pos = opAdd, 1
	}
	start := pos
	n, bad := keyLen(text[pos:])
	if bad != "" {
		return fail(pos+n, bad)
	}
	o.Key = text[pos : pos+n]
	pos += n
	if pos < len(text) && text[pos] == '@' {
		pos++
		n, bad := packageLen(text[pos:])
		if bad != "" {
			return fail(pos+n, bad)
		}
		o.Package, o.HasPackage = text[pos:pos+n], true
		pos += n
	}
	if o.Key == "" {
		return fail(start, "no key: want key=value")
	}
	if pos == len(text) {
		if o.Op == opDelete {
			return o, nil
		}
		return fail(pos, `want "=" and a value`)
	}
	if text[pos] != '=' {
		r := []rune(text[pos:])[0]
		return fail(pos, `unexpected "`+string(r)+`" in the key: want letters, digits, _ - . / @ or "="`)
	}
	p := &valueParser{s: text, pos: pos + 1}
	v, err := p.value()
	if err != nil {
		return nil, errorAt(Origin{Source: text}, "Error parsing override: %v", err)
	}
	if v.kind == extendElem && o.Op != opChange {
		return fail(0, "Trying to use override symbols when extending a list: want key=extend_list(…) without "+opPrefix[o.Op])
	}
	o.value = v
	return o, nil
}

// keyLen matches a group path or a package at the start of s.
func keyLen(s string) (n int, bad string) {
	n, bad = packageLen(s)
	if bad != "" || n == len(s) || s[n] != '/' {
		return n, bad
	}
	if n == 0 || wordLen(s) != n {
		return n, `a group path is words joined by "/"`
	}
	for n < len(s) && s[n] == '/' {
		w := wordLen(s[n+1:])
		if w == 0 {
			return n + 1, `want a name behind "/"`
		}
		n += 1 + w
	}
	return n, ""
}

// packageLen matches "" | ID | KEY_SPECIAL | DOT_PATH.
func packageLen(s string) (n int, bad string) {
	part := func(s string) int {
		if s == "" {
			return 0
		}
		if digit(s[0]) {
			return intLen(s)
		}
		i := 0
		for i < len(s) && (letter(s[i]) || s[i] == '$' || i > 0 && (digit(s[i]) || s[i] == '-')) {
			i++
		}
		return i
	}
	n = part(s)
	if n == 0 {
		if s != "" && s[0] == '.' {
			return 0, `a key cannot start with "."`
		}
		return 0, ""
	}
	dotted := false
	for n < len(s) && s[n] == '.' {
		w := part(s[n+1:])
		if w == 0 {
			return n + 1, `want a name or index behind "."`
		}
		n += 1 + w
		dotted = true
	}
	if !dotted && digit(s[0]) {
		return 0, "a key cannot be a number"
	}
	return n, ""
}

// fullKey is the key with its package: what group choices are named by.
func (o *Override) fullKey() string {
	if o.HasPackage {
		return o.Key + "@" + o.Package
	}
	return o.Key
}

// isHydra reports whether the override belongs to hydra.* or hydra/*.
func (o *Override) isHydra() bool {
	return strings.HasPrefix(o.Key, "hydra.") || strings.HasPrefix(o.Key, "hydra/") || o.Key == "hydra"
}

func (o *Override) isSweep() bool { return o.value != nil && o.value.isSweep() }

// describe names the type of an element in messages.
func (e *elem) describe() string {
	if e.kind == scalarElem {
		return e.node.Kind.String() + " (" + e.reprint() + ")"
	}
	return [...]string{listElem: "a list", dictElem: "a mapping", extendElem: "extend_list(…)", choiceSweep: "a choice",
		rangeSweep: "a range", intervalSweep: "an interval", globSweep: "a glob"}[e.kind]
}

// Value is what the override sets, typed by the grammar; nil for a sweep and for ~key without a value.
func (o *Override) Value() *Node {
	if o.value == nil || o.isSweep() {
		return nil
	}
	return o.value.toNode()
}

// parseOverrides parses all overrides and reports every fault.
func parseOverrides(texts []string) ([]*Override, error) {
	var out []*Override
	var faults Errors
	for _, t := range texts {
		o, err := ParseOverride(t)
		if err != nil {
			faults = append(faults, err.(*Error))
			continue
		}
		out = append(out, o)
	}
	return out, faults.err()
}
