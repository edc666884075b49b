package configs

import (
	"strings"
	"testing"
	"time"
)

// Whatever reads foreign text must end without a panic, and what it accepts must be stable.

func FuzzOverride(f *testing.F) {
	for _, s := range []string{"a=1", "+a.b=[1,{x:y}]", "~g@p=x", "a='\\'b'", "a=sort(3,1)", "a=${b}", "a=choice(1,[2],{a:b})",
		"a=range(1,2,0.5)", "a=tag(x,interval(0,1))", "a=glob([*],exclude=x)", "a=int('5')",
		"++x=\\,\\ ", "a=json_str([1,a])", "a=1e400", "a=((", "a=\"${b:'}'}\""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		o, err := ParseOverride(s)
		if err != nil {
			if strings.TrimSpace(err.Error()) == "" {
				t.Fatal("empty message")
			}
			return
		}
		if o.value == nil || o.value.isSweep() || o.value.kind == extendElem {
			return
		}
		again, err := ParseOverride("k=" + o.value.reprint()) // what a sweep's job is given
		if err != nil {
			if strings.Contains(s, "${") || hasOddText(o.value.toNode()) {
				return // functions can build text that has no spelling
			}
			t.Fatalf("%q re-prints as %q: %v", s, o.value.reprint(), err)
		}
		if a, b := again.value.reprint(), o.value.reprint(); a != b {
			t.Fatalf("%q re-prints as %q, then as %q", s, b, a)
		}
	})
}

// hasOddText reports text that Hydra's re-printing does not quote: it holds characters that need quotes.
func hasOddText(n *Node) bool {
	if n.Kind == String && strings.ContainsFunc(n.Text, func(r rune) bool {
		return r > 0x7e || r < 0x20 || strings.ContainsRune("#!&;<>~^`'\"", r)
	}) {
		return true
	}
	for i, v := range n.Vals {
		if hasOddText(v) || n.Kind == Map && hasOddText(n.Keys[i].node()) {
			return true
		}
	}
	return false
}

func FuzzYAML(f *testing.F) {
	for _, s := range []string{"a: 1\nb: [x, {c: d}]\n", "a: &x {b: 1}\nc: {<<: *x}\n", "? a\n: b\n", "a: |\n  x\n y\n", "- 1\n", "a: 'x",
		"%YAML 1.1\n---\na", "a: !!int '3'", "\xff\xfe", "a: ${b", "{a: ???}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := readYAML("f.yaml", data)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "f.yaml:") {
				t.Fatalf("error without a position: %v", err)
			}
			return
		}
		text := n.YAML()
		again, err := readYAML("g.yaml", []byte(text))
		if err != nil {
			t.Fatalf("own output does not parse: %v\n%q", err, text)
		}
		if b := again.YAML(); b != text {
			t.Fatalf("output changes when read again:\n%q\n%q", text, b)
		}
	})
}

func FuzzInterpolation(f *testing.F) {
	for _, s := range []string{"${a}", "x${b.c}\\${d}", "${oc.env:X,'${a}'}", "${.a}", "${a[0]}", "${oc.decode:'[1]'}", "${${a}}",
		"${oc.select:a,{b:[1]}}", "${now:%Y}", "${hydra:job.name}", "${v}", "${oc.create:'{v: ${v}}'}", "${oc.dict.values:b}"} {
		f.Add(s)
	}
	env := &environment{now: time.Unix(0, 0), getenv: func(string) (string, bool) { return "", false }, warn: func(string) {}}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := newString(s)
		if err != nil {
			return
		}
		root := &Node{Kind: Map, Keys: []Key{strKey("a"), strKey("b"), strKey("v")},
			Vals: []*Node{newInt(1), {Kind: Map, Keys: []Key{strKey("c")}, Vals: []*Node{plainString("x")}}, n}}
		out, err := newResolver(root, env).expand(&place{node: root})
		if err == nil && out.Get("v") == nil {
			t.Fatal("the value is gone")
		}
	})
}

// hydraSchema is the schema of Hydra's own node.
func hydraSchema(t testing.TB) *Schema {
	t.Helper()
	s, err := SchemaOf(&HydraConf{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// FuzzEdit applies two overrides to a tree with links. A tree that was edited prints, reads back and
// keeps the tree it came from.
func FuzzEdit(f *testing.F) {
	for _, s := range []string{"rd.x=1\n+l.0={a:1}", "~d.y\nd={x:[1]}", "+rd={x:${a}}\nrl=extend_list(1)", "d={r:{k:9}}\n~rr.r.k=9",
		"++a.b.c=null\n~a", "m=???\n+m.x=1", "+d.r=${d}\nd.r={x:1}", "l.1={k:2}\n~l.1.k"} {
		f.Add(s)
	}
	const base = "a: 1\nd: {x: 3, y: {w: 1}, r: '${c}'}\nc: {k: 7}\nl: [5, {k: 1}, '${a}']\nm: ???\nn: null\nrd: ${d}\nrl: ${l}\nrr: " +
		"${rd}\nbr: ${no}\n"
	env := &environment{now: time.Unix(0, 0), getenv: func(string) (string, bool) { return "", false }, warn: func(string) {}}
	hydra := hydraSchema(f)
	f.Fuzz(func(t *testing.T, s string) {
		root, err := ParseYAML("base", []byte(base))
		if err != nil {
			t.Fatal(err)
		}
		before := root.YAML()
		ed := &editor{root: root, env: env, hydra: hydra}
		for i, text := range strings.SplitN(s, "\n", 3) {
			o, err := ParseOverride(text)
			if err != nil || i == 2 || o.isSweep() {
				continue
			}
			if err := ed.apply(o); err != nil && !strings.HasPrefix(err.Error(), o.Text+": ") {
				t.Fatalf("%q: an error without the override: %v", text, err)
			}
		}
		if after := root.YAML(); after != before {
			t.Fatalf("%q changed the tree it was given:\n%s", s, after)
		}
		if _, err := newResolver(ed.root, env).expand(&place{node: ed.root}); err != nil && strings.TrimSpace(err.Error()) == "" {
			t.Fatal("empty message")
		}
		out := ed.root.YAML()
		again, err := ParseYAML("again", []byte(out))
		if err != nil {
			t.Fatalf("%q: the result does not read back: %v\n%s", s, err, out)
		}
		if got := again.YAML(); got != out {
			t.Fatalf("%q: the result reads back as\n%s\nnot\n%s", s, got, out)
		}
	})
}
