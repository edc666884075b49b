package configs

import (
	"strings"
	"testing"
)

func TestOverrideValues(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"an int keeps its type", "a=1", "int 1"},
		{"an exponent makes a float", "a=1e-4", "float 0.0001"},
		{"a trailing point makes a float", "a=5.", "float 5.0"},
		{"single underscores group digits", "a=1_000", "int 1000"},
		{"a leading zero is text", "a=007", "str 007"},
		{"two zeros are text", "a=00", "str 00"},
		{"two underscores are text", "a=1__0", "str 1__0"},
		{"a trailing underscore is text", "a=1_", "str 1_"},
		{"hexadecimal is text", "a=0x10", "str 0x10"},
		{"an empty exponent is text", "a=1e", "str 1e"},
		{"a version is text", "a=1.2.3", "str 1.2.3"},
		{"two numbers are text", "a=1 2", "str 1 2"},
		{"a time is text", "a=12:30", "str 12:30"},
		{"a date is text", "a=2024-01-15", "str 2024-01-15"},
		{"a word behind a boolean is text", "a=true x", "str true x"},
		{"two signs are text", "a=--1", "str --1"},
		{"a big int keeps its digits", "a=123456789012345678901234567890", "int 123456789012345678901234567890"},
		{"too large a float is infinite", "a=1e400", "float inf"},
		{"inf in any case", "a=-INF", "float -inf"},
		{"a word that starts like inf is text", "a=info", "str info"},
		{"null in any case", "a=NULL", "null"},
		{"none is text", "a=None", "str None"},
		{"blanks around are dropped", "a=  x y  ", "str x y"},
		{"nothing is the empty string", "a=", "str "},
		{"blanks are the empty string", "a=   ", "str "},
		{"escapes are undone", `a=a\,b\ `, "str a,b "},
		{"an unknown escape stays", `a=a\b`, `str a\b`},
		{"a double backslash is one", `a=c:\\d`, `str c:\d`},
		{"quotes keep all", `a='x, [y] #é'`, "str x, [y] #é"},
		{"backslashes before the quote count", `a='a\\'`, `str a\`},
		{"backslashes elsewhere stay", `a='a\\b'`, `str a\\b`},
		{"an escaped quote", `a='it\'s'`, "str it's"},
		{"urls", "a=http://h:80/p?q|r", "str http://h:80/p?q|r"},
		{"lists nest", "a=[1, [x,true] ,{b: null}]", "[int 1,[str x,bool true],{str b:null}]"},
		{"dict keys keep their type", "a={2:a,true:b,x y:c,1.5:d}", "{int 2:str a,bool true:str b,str x y:str c,float 1.5:str d}"},
		{"1 and true are one key, as in Python", "a={1:a,true:b,1.0:c}", "{int 1:str c}"},
		{"a colon in a value", "a={k:b:c}", "{str k:str b:c}"},
		{"the last of equal keys wins", "a={k:1,k:2}", "{str k:int 2}"},
		{"int cuts", "a=int(3.7)", "int 3"},
		{"int of a huge float is exact", "a=int(1e20)", "int 100000000000000000000"},
		{"blanks before the parenthesis", "a=int (3)", "int 3"},
		{"str prints as Python", "a=str(1e3)", "str 1000.0"},
		{"str of a boolean is lower case", "a=str(TRUE)", "str true"},
		{"bool of null", "a=bool(null)", "bool false"},
		{"casts go into dicts", "a=float({x:1})", "{str x:float 1.0}"},
		{"json_str", "a=json_str({a:[x,1,é]})", `!`},
		{"json_str of quoted", `a=json_str({a:[x,1,'é']})`, `str {"a": ["x", 1, "\u00e9"]}`},
		{"sort of a list", "a=sort([3,1,2.5])", "[int 1,float 2.5,int 3]"},

		{"no blank behind a quote", "a='x' ", "!"},
		{"no blank behind a list", "a=[1] ", "!"},
		{"a second equals sign", "a=b=c", "!"},
		{"a quote in the middle", "a=s'x'", "!"},
		{"letters must be ASCII", "a=café", "!"},
		{"a trailing comma", "a=[1,]", "!"},
		{"an empty item", "a=[1,,2]", "!"},
		{"a dict without values", "a={a}", "!"},
		{"a null key", "a={null:1}", "!"},
		{"a nested interpolation needs quotes", "a=${b.${c}}", "!"},
		{"an open quote", "a='x", "!"},
		{"an open list", "a=[x", "!"},
		{"an unknown function", "a=zap(1)", "!"},
		{"mixed types do not sort", "a=sort([1,x])", "!"},
		{"null does not cast", "a=int(null)", "!"},
		{"text that is no number", "a=float(x)", "!"},
		{"step 0", "a=range(1,2,0)", "!"},
		{"an endless range", "a=range(0,inf)", "!"},
		{"an empty choice", "a=choice()", "!"},
		{"choices do not nest", "a=choice(choice(1,2),3)", "!"},
		{"no blank in a key", "a =1", "!"},
		{"a number as a key", "5=x", "!"},
		{"two dots", "a..b=1", "!"},
		{"a leading dot", ".a=1", "!"},
		{"brackets", "l[1]=2", "!"},
		{"a negative index", "l.-1=2", "!"},
		{"letters of a key must be ASCII", "ä=1", "!"},
		{"no equals sign", "abc", "!"},
		{"nothing", "", "!"},
		{"no key", "=1", "!"},
		{"deep nesting ends", "a=" + strings.Repeat("[", 900), "!"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o, err := ParseOverride(tc.in)
			got := "!"
			if err == nil {
				got = typed(o.value)
			}
			if got != tc.want {
				t.Errorf("%s\n got %s (%v)\nwant %s", tc.in, got, err, tc.want)
			}
			if err != nil && !strings.Contains(err.Error(), tc.in) {
				t.Errorf("error without the override: %v", err)
			}
		})
	}
}

// typed shows an element with the types of its parts.
func typed(e *elem) string {
	var parts []string
	switch e.kind {
	case listElem:
		for _, x := range e.items {
			parts = append(parts, typed(x))
		}
		return "[" + strings.Join(parts, ",") + "]"
	case dictElem:
		for i, x := range e.items {
			parts = append(parts, typed(scalarOf(e.keys[i]))+":"+typed(x))
		}
		return "{" + strings.Join(parts, ",") + "}"
	case scalarElem:
		switch e.node.Kind {
		case Null:
			return "null"
		case Bool:
			if e.quote == 0 {
				return "bool " + map[bool]string{true: "true", false: "false"}[e.node.Bool]
			}
		}
		return map[Kind]string{Bool: "bool ", Int: "int ", Float: "float ", String: "str "}[e.node.Kind] + e.node.pyStr()
	}
	return "sweep"
}

func TestOverrideKeys(t *testing.T) {
	for _, tc := range []struct{ in, op, key, pkg string }{
		{"a.b.1=x", "", "a.b.1", ""},
		{"+g/h@p.q=x", "+", "g/h", "p.q"},
		{"++$a.b-c=x", "++", "$a.b-c", ""},
		{"~g@_global_", "~", "g", "_global_"},
	} {
		o, err := ParseOverride(tc.in)
		if err != nil {
			t.Errorf("%s: %v", tc.in, err)
			continue
		}
		if opPrefix[o.Op] != tc.op || o.Key != tc.key || o.Package != tc.pkg {
			t.Errorf("%s: got %q %q %q", tc.in, opPrefix[o.Op], o.Key, o.Package)
		}
	}
}

func TestYAMLScalars(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"yes", "bool true"}, {"OFF", "bool false"}, {"y", "str y"}, {"oN", "str oN"},
		{"~", "null"}, {"NULL", "null"}, {"none", "str none"},
		{"0b101", "int 5"}, {"0x1F", "int 31"}, {"017", "int 15"}, {"0o17", "str 0o17"}, {"08", "str 08"}, {"0128", "str 0128"},
		{"1_000", "int 1000"}, {"1_", "int 1"}, {"+7", "int 7"}, {"12:30", "int 750"}, {"1:2:3", "int 3723"}, {"1:60", "str 1:60"},
		{"2:1_2", "str 2:1_2"}, {"1:3_0.5", "str 1:3_0.5"},
		{"1.", "float 1.0"}, {".5", "float 0.5"}, {"1e3", "float 1000.0"}, {"1.5E-3", "float 0.0015"}, {"1_0.5", "float 10.5"},
		{"-.INF", "float -inf"}, {".nan", "float nan"}, {"inf", "str inf"}, {"1e", "str 1e"}, {"e5", "str e5"},
		{"2001-12-14", "str 2001-12-14"}, {"99999999999999999999", "int 99999999999999999999"}, {"-", "str -"}, {"0", "int 0"}, {"-0", "int 0"},
	} {
		n := plainScalar(tc.in)
		if n == nil {
			n = plainString(tc.in)
		}
		if got := typed(scalarOf(n)); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.in, got, tc.want)
		}
	}
}

// TestToYAML compares with PyYAML 6 under OmegaConf's representer.
func TestToYAML(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"lists stand at the parent's indent", "a: {b: [1, {c: 2, d: []}, [x]]}", "a:\n  b:\n  - 1\n  - c: 2\n    d: []\n  - - x\n"},
		{"text that looks like something else is quoted", `a: ["1", "1e-4", "y", "null", "", "x: y", "- x", "inf", "2020-01-02", " x", "0x1F"]`,
			"a:\n- '1'\n- '1e-4'\n- 'y'\n- 'null'\n- ''\n- 'x: y'\n- '- x'\n- 'inf'\n- '2020-01-02'\n- ' x'\n- '0x1F'\n"},
		{"floats are Python's", "a: [1e-10, 1e20, .inf, .nan, 1e3, 0.1, 1e16]",
			"a:\n- 1.0e-10\n- 1.0e+20\n- .inf\n- .nan\n- 1000.0\n- 0.1\n- 1.0e+16\n"},
		{"lines", `a: "x\ny\n"`, "a: 'x\n\n  y\n\n  '\n"},
		{"control characters are escaped", `a: "x\ty"`, "a: \"x\\ty\"\n"},
		{"unicode stays", "a: naïve Ω", "a: naïve Ω\n"},
		{"long text is folded", "a: " + strings.Repeat("word ", 20) + "end",
			"a: " + strings.TrimSpace(strings.Repeat("word ", 16)) + "\n  " + strings.Repeat("word ", 4) + "end\n"},
		{"keys keep their type", "{on: 1, 2: x, 'on': y}", "true: 1\n2: x\n'on': 'y'\n"},
		{"an empty mapping", "{}", "{}\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n, err := readYAML("t", []byte(tc.in))
			if err != nil {
				t.Fatal(err)
			}
			got := n.YAML()
			if got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
			again, err := readYAML("t", []byte(got))
			if err != nil || !again.equal(n) && !strings.Contains(got, ".nan") {
				t.Errorf("does not read back: %v", err)
			}
		})
	}
}

func TestSweepValues(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"a=0.1,1e-3,1e-5,1e3", "0.1 0.001 1e-05 1000.0"},
		{"a=true,null,1_000", "True null 1000"},
		{"a='b c',d e", `'b c' d\ e`},
		{"a=choice('b c',[x,'y,z'],{k:v w})", `b\ c [x,'y,z'] {k:v\ w}`},
		{"a=${x},a:b", `$\{x\} a\:b`},
		{"a=range(3)", "0 1 2"},
		{"a=range(5,0,-2)", "5 3 1"},
		{"a=range(0.1,0.5,0.1)", "0.1 0.2 0.3 0.4"},
		{"a=range(start=1,stop=2,step=0.5)", "1.0 1.5"},
		{"a=range(2,2)", ""},
		{"a=sort(range(3,0,-1))", "1 2 3"},
		{"a=sort(range(0,3),reverse=true)", "2 1 0"},
		{"a=int(range(0.0,3.0))", "0 1 2"},
		{"a=str(1,2)", "1 2"},
		{"a=tag(x,y,choice(1,2))", "1 2"},
		{`a='it\'s',"q"`, `'it\'s' "q"`},
	} {
		o, err := ParseOverride(tc.in)
		if err != nil {
			t.Errorf("%s: %v", tc.in, err)
			continue
		}
		vals, err := o.value.values(nil)
		if got := strings.Join(vals, " "); err != nil || got != tc.want {
			t.Errorf("%s: got %s (%v), want %s", tc.in, got, err, tc.want)
		}
	}
}

func TestFnmatch(t *testing.T) {
	for _, tc := range []struct {
		p, s string
		want bool
	}{
		{"*", "", true}, {"a*c", "abbc", true}, {"a*c", "abb", false}, {"?b", "ab", true}, {"[ab]x", "bx", true},
		{"[!ab]x", "bx", false}, {"[a-c]", "b", true}, {"[", "[", true}, {"a*b*c", "aXbYc", true}, {"[]]", "]", true},
		{"[!]", "[!]", true}, {"[]", "[]", true}, {"[^a]", "^", true}, {"[a-", "[a-", true}, {"[[:a:]]", "a]", true}, {`[a\]`, `\`, true},
		{"a.c", "abc", false}, {"*é?", "xéy", true}, {"[é]", "é", true}, {"a*", "a\nb", true},
	} {
		if got := fnmatch(tc.p, tc.s); got != tc.want {
			t.Errorf("fnmatch(%q, %q) = %v", tc.p, tc.s, got)
		}
	}
}

func TestFill(t *testing.T) {
	for _, tc := range []struct{ template, want string }{
		{"$$ $A ${A}x $$A", "$ 1 1x $A"}, {"${A", "1"}, {"no variable", "no variable"},
		{"costs 5 $", "unknown $ (did"}, {"${B}", "unknown $B"},
	} {
		got, err := fill(tc.template, map[string]string{"A": "1"})
		if err != nil {
			got = err.Error()
		}
		if got != tc.want && (err == nil || !strings.HasPrefix(got, tc.want)) {
			t.Errorf("fill(%q) = %q, want %q", tc.template, got, tc.want)
		}
	}
}
