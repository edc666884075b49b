package configs

import (
	"slices"
	"strconv"
	"strings"

	"fulcrum/internal/list"
)

// Kind is the type of a value in a config tree.
type Kind uint8

// The kinds. A missing value (???) is a String.
const (
	Null Kind = iota
	Bool
	Int
	Float
	String
	Map
	List
)

var kindNames = [...]string{"null", "a boolean", "an integer", "a number", "text", "a mapping", "a list"}

func (k Kind) String() string { return kindNames[k] }

// missing is the text of a value that must be given before it is used.
const missing = "???"

// Origin is where a value was set: a place in a file, or the text of an override (Line 0).
type Origin struct {
	Source    string // file as the user can open it, or the override as typed
	Line, Col int32  // from 1; 0 for overrides
}

func (o Origin) String() string {
	if o.Line == 0 {
		return o.Source
	}
	return o.Source + ":" + strconv.Itoa(int(o.Line)) + ":" + strconv.Itoa(int(o.Col))
}

// Key is a mapping key. Keys of YAML keep their type: an unquoted `on:` is a boolean key.
type Key struct {
	Kind Kind
	Text string // as Python's str() prints it
}

func strKey(s string) Key { return Key{String, s} }

// hashed gives keys that are one key in a Python dict (1, 1.0 and true) one form.
func (k Key) hashed() Key {
	switch k.Kind {
	case Bool:
		if k.Text == "True" {
			return Key{Int, "1"}
		}
		return Key{Int, "0"}
	case Float:
		if whole, ok := strings.CutSuffix(k.Text, ".0"); ok {
			if whole == "-0" {
				whole = "0"
			}
			return Key{Int, whole}
		}
	}
	return k
}

// Node is a value of a config tree. Nodes never change once built: edits copy the path to the root
// and share the rest, so that files are parsed once and thousands of jobs share their trees.
type Node struct {
	Kind   Kind
	Bool   bool
	Num    float64 // Float
	Text   string  // String: the text; Int: canonical decimal digits, any size
	Keys   []Key   // Map
	Vals   []*Node // Map: values in the order of Keys; List: items
	Origin Origin
	Over   *Node // what this value replaced, for explain

	tmpl *template // String with ${…}: parsed when the value was loaded
	from string    // the interpolation that gave a scalar: a field takes it in its own type, as OmegaConf does
}

func newNull() *Node            { return &Node{Kind: Null} }
func newBool(b bool) *Node      { return &Node{Kind: Bool, Bool: b} }
func newInt(i int64) *Node      { return &Node{Kind: Int, Text: strconv.FormatInt(i, 10)} }
func newFloat(f float64) *Node  { return &Node{Kind: Float, Num: f} }
func newMap() *Node             { return &Node{Kind: Map} }
func newList(v ...*Node) *Node  { return &Node{Kind: List, Vals: v} }
func (n *Node) container() bool { return n.Kind == Map || n.Kind == List }
func (n *Node) isMissing() bool { return n.Kind == String && n.Text == missing }

// plainString makes text that is never an interpolation (computed text, captions).
func plainString(s string) *Node { return &Node{Kind: String, Text: s} }

// newString makes a text node; text with ${ is parsed, and a syntax error in it is returned.
func newString(s string) (*Node, error) {
	n := plainString(s)
	var err error
	if strings.Contains(s, "${") {
		n.tmpl, err = parseTemplate(s)
	}
	return n, err
}

// stringOf is newString where a text with a syntax error stands for itself.
func stringOf(s string) *Node {
	if n, err := newString(s); err == nil {
		return n
	}
	return plainString(s)
}

// at returns a copy of n with another origin, in its whole subtree.
func (n *Node) at(o Origin) *Node {
	c := *n
	c.Origin = o
	if len(n.Vals) > 0 {
		c.Vals = list.Map(n.Vals, func(v *Node) *Node { return v.at(o) })
	}
	return &c
}

func (n *Node) index(k Key) int { return slices.Index(n.Keys, k) }

// locate returns where the element with a key, or an index given as text, stands in n; -1 when it is absent.
func (n *Node) locate(part string) int {
	if n.Kind == List {
		if i, ok := listIndex(part, len(n.Vals)); ok {
			return i
		}
		return -1
	}
	return n.index(strKey(part))
}

// keyAt is the key or index of element i as text.
func (n *Node) keyAt(i int) string {
	if n.Kind == Map {
		return n.Keys[i].Text
	}
	return strconv.Itoa(i)
}

// names are the keys of a mapping as text.
func (n *Node) names() []string { return list.Map(n.Keys, func(k Key) string { return k.Text }) }

// Get returns the value under a text key of a mapping, or nil.
func (n *Node) Get(key string) *Node {
	if n == nil || n.Kind != Map {
		return nil
	}
	return n.child(key)
}

// Find follows a dotted path of keys and list indices without resolving interpolations; nil when absent.
func (n *Node) Find(path string) *Node { return n.findPath(splitPath(path)) }

func (n *Node) findPath(path []string) *Node {
	for _, part := range path {
		if n == nil {
			return nil
		}
		n = n.child(part)
	}
	return n
}

// child is the value under a key or list index given as text, or nil.
func (n *Node) child(part string) *Node {
	if i := n.locate(part); i >= 0 {
		return n.Vals[i]
	}
	return nil
}

// listIndex reads an index, counted from the end when negative.
func listIndex(s string, length int) (int, bool) {
	i, err := strconv.Atoi(s)
	if err != nil {
		return 0, false
	}
	if i < 0 {
		i += length
	}
	return i, i >= 0 && i < length
}

// splitPath splits a.b[0].c into its parts.
func splitPath(path string) []string {
	if path == "" {
		return nil
	}
	if strings.IndexByte(path, '[') < 0 {
		return strings.Split(path, ".")
	}
	return strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' })
}

// set returns a copy of the mapping n with key set to v (appended when new).
func (n *Node) set(k Key, v *Node) *Node {
	if i := n.index(k); i >= 0 {
		return n.with(i, v)
	}
	c := *n
	c.Keys = append(n.Keys[:len(n.Keys):len(n.Keys)], k)
	c.Vals = append(n.Vals[:len(n.Vals):len(n.Vals)], v)
	return &c
}

// with returns a copy of the mapping or list n with v as element i.
func (n *Node) with(i int, v *Node) *Node {
	c := *n
	c.Vals = slices.Clone(n.Vals)
	c.Vals[i] = v
	return &c
}

// remove returns a copy of the mapping or list n without element i.
func (n *Node) remove(i int) *Node {
	c := *n
	c.Vals = slices.Delete(slices.Clone(n.Vals), i, i+1)
	if n.Kind == Map {
		c.Keys = slices.Delete(slices.Clone(n.Keys), i, i+1)
	}
	return &c
}

// mapped returns a copy of the mapping n with what f makes of each value; nil leaves it out.
func (n *Node) mapped(f func(key string, v *Node) *Node) *Node {
	out := &Node{Kind: Map, Origin: n.Origin, Over: n.Over}
	for i, k := range n.Keys {
		if v := f(k.Text, n.Vals[i]); v != nil {
			out.Keys, out.Vals = append(out.Keys, k), append(out.Vals, v)
		}
	}
	return out
}

// without returns the mapping n without a text key.
func (n *Node) without(key string) *Node {
	if i := n.index(strKey(key)); i >= 0 {
		return n.remove(i)
	}
	return n
}

// setPath returns a copy of root with the value at a path of text keys replaced; absent parents are made.
func (n *Node) setPath(path []string, v *Node) *Node {
	if len(path) == 0 {
		return v
	}
	if n == nil || n.Kind != Map {
		n = newMap()
	}
	return n.set(strKey(path[0]), n.Get(path[0]).setPath(path[1:], v))
}

// equal compares values as Python does: 1 == 1.0 == True, text and numbers differ.
func (n *Node) equal(m *Node) bool {
	if n.Kind == Map || n.Kind == List {
		if n.Kind != m.Kind || len(n.Vals) != len(m.Vals) {
			return false
		}
		for i, v := range n.Vals {
			w := m.Vals[i]
			if n.Kind == Map {
				j := m.index(n.Keys[i])
				if j < 0 {
					return false
				}
				w = m.Vals[j]
			}
			if !v.equal(w) {
				return false
			}
		}
		return true
	}
	a, aNum := n.number()
	b, bNum := m.number()
	if aNum && bNum {
		return a == b || n.Kind == Int && m.Kind == Int && n.Text == m.Text
	}
	return n.Kind == m.Kind && n.Text == m.Text
}

// number is the value of a number or boolean as float64.
func (n *Node) number() (float64, bool) {
	switch n.Kind {
	case Int:
		f, _ := strconv.ParseFloat(n.Text, 64)
		return f, true
	case Float:
		return n.Num, true
	case Bool:
		if n.Bool {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// value converts to the types that maps of any hold; keys become text.
func (n *Node) value() any {
	switch n.Kind {
	case Bool:
		return n.Bool
	case Int:
		if i, err := strconv.ParseInt(n.Text, 10, 64); err == nil {
			return int(i)
		}
		f, _ := strconv.ParseFloat(n.Text, 64)
		return f
	case Float:
		return n.Num
	case String:
		return n.Text
	case List:
		return list.Map(n.Vals, func(v *Node) any { return v.value() })
	case Map:
		out := make(map[string]any, len(n.Vals))
		for i, v := range n.Vals {
			out[n.Keys[i].Text] = v.value()
		}
		return out
	}
	return nil
}
