package configs

import (
	"slices"
	"strings"

	"fulcrum/internal/digest"
)

// Fingerprint is a sha256 of the resolved job config without the excluded keys (dotted, sections
// allowed). The order of keys does not matter.
func (c *Composed) Fingerprint(exclude ...string) (string, error) {
	n, err := c.Resolved()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	c.composer.canonical(&b, n, exclude)
	return digest.Of([]byte(b.String())), nil
}

// maxCanonical bounds the texts that a Composer remembers.
const maxCanonical = 1 << 14

// canonical writes n with sorted keys. The jobs of a sweep share the sections that no override touches,
// so their texts are remembered.
func (c *Composer) canonical(b *strings.Builder, n *Node, exclude []string) {
	if n.Kind != Map && n.Kind != List {
		b.WriteString(jsonText(n))
		return
	}
	if len(exclude) > 0 {
		c.writeCanonical(b, n, exclude)
		return
	}
	text, ok := c.texts[n]
	if !ok {
		var own strings.Builder
		c.writeCanonical(&own, n, nil)
		text = own.String()
		if c.texts == nil || len(c.texts) >= maxCanonical {
			c.texts = map[*Node]string{}
		}
		c.texts[n] = text
	}
	b.WriteString(text)
}

func (c *Composer) writeCanonical(b *strings.Builder, n *Node, exclude []string) {
	if n.Kind == List {
		b.WriteByte('[')
		for i, v := range n.Vals {
			c.canonical(b, v, below(exclude, itoa(i)))
			b.WriteByte(',')
		}
		b.WriteByte(']')
		return
	}
	order := make([]int, len(n.Keys))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return strings.Compare(n.Keys[i].Text, n.Keys[j].Text) })
	b.WriteByte('{')
	for _, i := range order {
		if slices.Contains(exclude, n.Keys[i].Text) {
			continue
		}
		b.WriteString(jsonQuote(n.Keys[i].Text))
		b.WriteByte(':')
		c.canonical(b, n.Vals[i], below(exclude, n.Keys[i].Text))
		b.WriteByte(',')
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
