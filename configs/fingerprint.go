package configs

import (
	"slices"
	"strings"

	"fulcrum/internal/digest"
	"fulcrum/internal/stat"
)

// Fingerprint returns a sha256 of the resolved job config without the excluded keys (dotted, sections
// allowed) and without the keys at their schema's default: a key that is added later, with a default that
// does what was done before, changes no fingerprint. The order of keys does not matter.
func (c *Composed) Fingerprint(exclude ...string) (string, error) {
	n, err := c.Resolved()
	if err != nil {
		return "", err
	}
	var f *field
	var defaults *Node
	if s := c.base.schema; s != nil {
		f, defaults = s.root, s.defaults.tree
	}
	var b strings.Builder
	c.composer.canonical(&b, f, n, defaults, exclude)
	return digest.Of([]byte(b.String())), nil
}

// canonicalKey is a value and the default that it is compared with.
type canonicalKey struct{ value, base *Node }

// maxCanonical bounds the texts that a Composer remembers.
const maxCanonical = 1 << 14

// canonical writes n with sorted keys. f and base are the field of n and its default; without them every key is
// written. The jobs of a sweep share the sections that no override touches, so their texts are remembered.
func (c *Composer) canonical(b *strings.Builder, f *field, n, base *Node, exclude []string) {
	if !n.container() {
		b.WriteString(jsonText(n))
		return
	}
	if len(exclude) > 0 {
		c.writeCanonical(b, f, n, base, exclude)
		return
	}
	key := canonicalKey{n, base}
	text, ok := c.texts[key]
	if !ok {
		var own strings.Builder
		c.writeCanonical(&own, f, n, base, nil)
		text = own.String()
		if c.texts == nil || len(c.texts) >= maxCanonical {
			c.texts = map[canonicalKey]string{}
		}
		c.texts[key] = text
	}
	b.WriteString(text)
}

func (c *Composer) writeCanonical(b *strings.Builder, f *field, n, base *Node, exclude []string) {
	if n.Kind == List {
		b.WriteByte('[')
		for i, v := range n.Vals {
			c.canonical(b, nil, v, nil, below(exclude, itoa(i)))
			b.WriteByte(',')
		}
		b.WriteByte(']')
		return
	}
	order := stat.Indices(len(n.Keys))
	slices.SortFunc(order, func(i, j int) int { return strings.Compare(n.Keys[i].Text, n.Keys[j].Text) })
	b.WriteByte('{')
	for _, i := range order {
		key, v := n.Keys[i].Text, n.Vals[i]
		if slices.Contains(exclude, key) || !v.container() && slices.Contains(exclude, key+"="+jsonText(v)) {
			continue
		}
		var of *field
		was := base.Get(key)
		if f != nil {
			of = f.sub(key)
		}
		section := was != nil && was.Kind == Map && v.Kind == Map && of != nil && of.elem == nil && of.kind == Map
		if was != nil && !section && v.equal(was) {
			continue
		}
		if !section {
			of, was = nil, nil
		}
		var own strings.Builder
		c.canonical(&own, of, v, was, below(exclude, key))
		if section && own.String() == "{}" {
			continue
		}
		b.WriteString(jsonQuote(key) + ":" + own.String() + ",")
	}
	b.WriteByte('}')
}

// below are the paths of exclude that begin with key, without it.
func below(exclude []string, key string) []string {
	var out []string
	for _, path := range exclude {
		if rest, ok := strings.CutPrefix(path, key+"."); ok {
			out = append(out, rest)
		}
	}
	return out
}
