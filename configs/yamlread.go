package configs

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"fulcrum/internal/registry"
)

// maxNodes bounds what aliases in a file, or interpolations in a tree, may expand to.
const maxNodes = 1 << 20

// maxYAMLDepth bounds the nesting of a file, far below what Python's stack takes.
const maxYAMLDepth = 400

// readYAML parses one document as OmegaConf.load does: an empty file is {}, a lone word w is {w: null}.
func readYAML(source string, data []byte) (*Node, error) {
	n, err := ParseYAML(source, data)
	if err != nil {
		return nil, err
	}
	switch n.Kind {
	case Map:
		return n, nil
	case Null:
		return &Node{Kind: Map, Origin: n.Origin}, nil
	case String:
		return &Node{Kind: Map, Keys: []Key{strKey(n.Text)}, Vals: []*Node{newNull()}, Origin: n.Origin}, nil
	}
	return nil, errorAt(n.Origin, "the file holds %s: want a mapping", n.Kind)
}

// ParseYAML parses one document of any kind; an empty one is {}.
func ParseYAML(source string, data []byte) (n *Node, err error) {
	defer func() { // the parser is not ours: a fault in it is an error of this file
		if r := recover(); r != nil {
			n, err = nil, errorAt(Origin{source, 1, 1}, "not YAML: %v", r)
		}
	}()
	data, restore := forLibrary(data)
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return &Node{Kind: Map, Origin: Origin{source, 1, 1}}, nil
	} else if err != nil {
		return nil, yamlError(source, data, err)
	}
	var second yaml.Node
	if err := dec.Decode(&second); err == nil {
		return nil, errorAt(Origin{source, int32(max(second.Line, 1)), 1}, "a second YAML document: want one document a file")
	} else if !errors.Is(err, io.EOF) {
		return nil, yamlError(source, data, err)
	}
	r := yamlReader{source: source, restore: restore, done: map[*yaml.Node]*Node{}, open: map[*yaml.Node]bool{}, sizes: map[*Node]int{},
		anchors: map[string]bool{}}
	return r.read(doc.Content[0])
}

// question stands for a "?" inside a plain scalar while the library reads the file: in a flow
// collection the library would end the scalar there, as in {url: http://host/path?query}.
const question = "\uf03f"

// forLibrary rewrites what the library refuses and libyaml, which PyYAML uses, accepts: "?" inside
// flow scalars and %YAML 1.2. restore undoes it in a scalar.
func forLibrary(data []byte) (rewritten []byte, restore func(string) string) {
	restore = func(s string) string { return s }
	if bytes.HasPrefix(data, []byte("%YAML 1.")) {
		if end := bytes.IndexByte(data, '\n'); end > 0 {
			data = append([]byte("%YAML 1.1"), data[end:]...)
		}
	}
	if bytes.IndexByte(data, '?') < 0 || bytes.Contains(data, []byte(question)) {
		return data, restore
	}
	out := make([]byte, 0, len(data)+16)
	inside := false // the last byte belongs to a plain scalar, or to what may be one
	for i, c := range data {
		switch {
		case c == '?' && inside:
			out = append(out, question...)
			continue
		case c == ':' && i > 0 && (data[i-1] == '"' || data[i-1] == '\''):
			inside = false
		default:
			inside = strings.IndexByte(" \t\r\n[{,?", c) < 0
		}
		out = append(out, c)
	}
	return out, func(s string) string { return strings.ReplaceAll(s, question, "?") }
}

// yamlError gives the parser's message a position: it knows the line only.
func yamlError(source string, data []byte, err error) error {
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if rest, ok := strings.CutPrefix(msg, "line "); ok {
		if num, text, ok := strings.Cut(rest, ": "); ok {
			if v, e := strconv.Atoi(num); e == nil {
				line, msg = max(v, 1), text
			}
		}
	}
	if strings.HasPrefix(msg, "did not find expected") && bytes.Contains(data, []byte("???")) {
		msg += " (inside [] and {} a missing value must be quoted: '???')"
	}
	if strings.HasPrefix(msg, "found character that cannot start") {
		msg += " (YAML is indented by spaces, never by tabs)"
	}
	col := 1
	if lines := bytes.Split(data, []byte("\n")); line <= len(lines) {
		l := lines[line-1]
		col += len(l) - len(bytes.TrimLeft(l, " \t"))
	}
	return errorAt(Origin{source, int32(line), int32(col)}, "not YAML: %s", msg)
}

type yamlReader struct {
	source  string
	restore func(string) string
	done    map[*yaml.Node]*Node // anchored nodes, read once
	open    map[*yaml.Node]bool  // anchored nodes being read: an alias to one is a cycle
	anchors map[string]bool      // names of anchors met
	sizes   map[*Node]int        // expanded sizes of anchored nodes
	total   int
	depth   int // of containers around
	flow    int // depth of [] and {} around
	key     bool
}

func (r *yamlReader) origin(y *yaml.Node) Origin {
	return Origin{r.source, int32(y.Line), int32(y.Column)}
}

func (r *yamlReader) read(y *yaml.Node) (*Node, error) {
	if y.Kind == yaml.AliasNode {
		target := y.Alias
		if target == nil || r.open[target] {
			return nil, errorAt(r.origin(y), "alias *%s refers to itself", y.Value)
		}
		n := r.done[target]
		if n == nil {
			return nil, errorAt(r.origin(y), "alias *%s has no anchor before it", y.Value)
		}
		return n, r.count(y, r.sizes[n])
	}
	if r.depth++; r.depth > maxYAMLDepth {
		return nil, errorAt(r.origin(y), "nested deeper than %d", maxYAMLDepth)
	}
	defer func() { r.depth-- }()
	before := r.total
	if err := r.count(y, 1); err != nil {
		return nil, err
	}
	if y.Anchor != "" {
		if r.anchors[y.Anchor] {
			return nil, errorAt(r.origin(y), "found duplicate anchor &%s", y.Anchor)
		}
		r.anchors[y.Anchor] = true
		r.open[y] = true
	}
	n, err := r.readPlain(y)
	if err != nil {
		return nil, err
	}
	n.Origin = r.origin(y)
	if y.Anchor != "" {
		delete(r.open, y)
		r.done[y] = n
		r.sizes[n] = r.total - before
	}
	return n, nil
}

func (r *yamlReader) count(y *yaml.Node, size int) error {
	if r.total += size; r.total > maxNodes {
		return errorAt(r.origin(y), "YAML node expansion exceeds the limit: aliases expand to more than %d values", maxNodes)
	}
	return nil
}

func (r *yamlReader) readPlain(y *yaml.Node) (*Node, error) {
	tag := ""
	if y.Style&yaml.TaggedStyle != 0 {
		tag = y.ShortTag()
	}
	if y.Style&yaml.FlowStyle != 0 {
		r.flow++
		defer func() { r.flow-- }()
	}
	switch y.Kind {
	case yaml.ScalarNode:
		y.Value = r.restore(y.Value)
		return r.scalar(y, tag)
	case yaml.SequenceNode:
		if tag != "" && tag != "!!seq" {
			return nil, r.badTag(y, tag)
		}
		n := newList()
		for _, item := range y.Content {
			v, err := r.read(item)
			if err != nil {
				return nil, err
			}
			n.Vals = append(n.Vals, v)
		}
		return n, nil
	case yaml.MappingNode:
		if tag != "" && tag != "!!map" {
			return nil, r.badTag(y, tag)
		}
		return r.mapping(y)
	}
	return nil, errorAt(r.origin(y), "not a YAML value")
}

func (r *yamlReader) badTag(y *yaml.Node, tag string) error {
	return errorAt(r.origin(y), "unknown tag %s on %s", tag, clip(y.Value))
}

// clip shortens text for a message.
func clip(s string) string {
	if len(s) > 60 {
		s = s[:57] + "..."
	}
	return strconv.Quote(s)
}

func (r *yamlReader) scalar(y *yaml.Node, tag string) (*Node, error) {
	quoted := y.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0
	var n *Node
	switch tag {
	case "":
		switch {
		case quoted:
		case y.Value == "<<", y.Value == "=" && !r.key:
			return nil, errorAt(r.origin(y), "%s has a meaning of its own in YAML: quote it", clip(y.Value))
		case r.flow > 0 && (!r.key && strings.HasSuffix(y.Value, ":") || strings.Contains(y.Value, ":?")):
			return nil, errorAt(r.origin(y), "found unexpected ':' in %s: put a blank behind it or quote the text", clip(y.Value))
		default:
			n = plainScalar(y.Value)
		}
	case "!!str", "!":
	case "!!null", "!!bool", "!!int", "!!float":
		if n = taggedScalar(tag, y.Value); n == nil {
			return nil, errorAt(r.origin(y), "%s is not %s, as its tag %s says", clip(y.Value), taggedKinds[tag], tag)
		}
	default:
		return nil, r.badTag(y, tag)
	}
	if n != nil {
		return n, nil
	}
	n, err := newString(y.Value)
	if err != nil {
		return nil, errorAt(r.origin(y), "%v", err)
	}
	return n, nil
}

var taggedKinds = map[string]Kind{"!!null": Null, "!!bool": Bool, "!!int": Int, "!!float": Float}

// taggedScalar reads a scalar as PyYAML's constructor for an explicit tag does, which takes more
// spellings than an untagged scalar of that type has; nil when it fails.
func taggedScalar(tag, s string) *Node {
	switch tag {
	case "!!null":
		return newNull()
	case "!!bool":
		if n := plainScalar(strings.ToLower(s)); n != nil && n.Kind == Bool {
			return n
		}
		return nil
	case "!!int":
		if n := yamlInt(s); n != nil {
			return n
		}
		if sign, body := splitSign(strings.ReplaceAll(s, "_", "")); body != "" && body[0] != '0' && span(body, digits) == len(body) {
			return intNode(sign, body, 10)
		}
		return nil
	}
	if n := yamlFloat(s); n != nil {
		return n
	}
	if text := strings.ReplaceAll(s, "_", ""); pyIsNumber(text) {
		return parseFloatText(strings.TrimSpace(text))
	}
	return nil
}

// mapping reads keys and values; what << merges in comes first.
func (r *yamlReader) mapping(y *yaml.Node) (*Node, error) {
	n := newMap()
	at := map[Key]int{} // by the key as Python's dict sees it
	put := func(k Key, v *Node) {
		if i, ok := at[k.hashed()]; ok {
			n.Vals[i] = v
			return
		}
		at[k.hashed()] = len(n.Keys)
		n.Keys, n.Vals = append(n.Keys, k), append(n.Vals, v)
	}
	own := newMap() // behind what is merged in, so that explicit keys win
	seen := map[string]bool{}
	for i := 0; i+1 < len(y.Content); i += 2 {
		k, v := y.Content[i], y.Content[i+1]
		if k.Kind == yaml.ScalarNode && k.Value == "<<" && k.Style == 0 {
			if err := r.merge(v, put); err != nil {
				return nil, err
			}
			continue
		}
		key, err := r.mappingKey(k)
		if err != nil {
			return nil, err
		}
		if key.Kind == String { // of other keys the last wins, as in OmegaConf
			if seen[key.Text] {
				return nil, errorAt(r.origin(k), "found duplicate key %s", key.Text)
			}
			seen[key.Text] = true
		}
		if r.flow > 0 && k.Style == 0 && v.Style == 0 && strings.HasSuffix(key.Text, ":") && v.Value == "" && len(v.Content) == 0 {
			return nil, errorAt(r.origin(k), "found unexpected ':' in %s: put a blank behind it or quote the text", clip(key.Text))
		}
		value, err := r.read(v)
		if err != nil {
			return nil, err
		}
		own.Keys, own.Vals = append(own.Keys, key), append(own.Vals, value)
	}
	for i, key := range own.Keys {
		put(key, own.Vals[i])
	}
	return n, nil
}

func (r *yamlReader) mappingKey(k *yaml.Node) (Key, error) {
	r.key = true
	n, err := r.read(k)
	r.key = false
	if err != nil {
		return Key{}, err
	}
	if n.container() || n.Kind == Null {
		return Key{}, errorAt(r.origin(k), "%s as a key: want text, a number or a boolean", n.Kind)
	}
	if n.Kind == Bool && k.Value == "off" { // checks.off: nobody means a key False, which no override could name
		return strKey(k.Value), nil
	}
	return n.key(), nil
}

func (r *yamlReader) merge(y *yaml.Node, put func(Key, *Node)) error {
	v, err := r.read(y)
	if err != nil {
		return err
	}
	maps := []*Node{v}
	if v.Kind == List {
		maps = v.Vals
	}
	for _, from := range slices.Backward(maps) { // the first of a list wins
		if from.Kind != Map {
			return errorAt(r.origin(y), "<< of %s: want a mapping or a list of mappings", from.Kind)
		}
		for i, k := range from.Keys {
			put(k, from.Vals[i])
		}
	}
	return nil
}

// readHeader returns the package of a leading `# @package p` line. Only blank lines and other
// `# @key value` lines may come before it.
func readHeader(source string, data []byte) (pkg string, ok bool, err error) {
	if len(data) > 512 {
		data = data[:512]
	}
	line := int32(0)
	for len(data) > 0 {
		text, rest, _ := bytes.Cut(data, []byte("\n"))
		data = rest
		line++
		s := strings.TrimSpace(string(text))
		if s == "" {
			continue
		}
		if s[0] != '#' {
			break
		}
		s = strings.TrimLeft(s[1:], " \t")
		if s == "" || s[0] != '@' {
			break
		}
		fields := strings.Fields(s[1:])
		if len(fields) != 2 {
			return "", false, errorAt(Origin{source, line, 1}, "header %q: want one value, as in # @package NAME", "# "+s)
		}
		if fields[0] == "package" {
			pkg, ok = fields[1], true
		}
	}
	return pkg, ok, nil
}

// didYouMean is " (did you mean x?)" or nothing.
func didYouMean(name string, names []string) string {
	if near, ok := registry.Nearest(name, names); ok {
		return " (did you mean " + near + "?)"
	}
	return ""
}
