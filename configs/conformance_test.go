package configs

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// The rules of Hydra's override functions, in the words of Hydra where a message is
// wanted. "!text" wants an error that holds text.
func TestOverrideFunctions(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"int(10.0)", "int 10"},
		{"int(-3.9)", "int -3"},
		{"int(true,2.5,'7')", "sweep 1 2 7"},
		{"int(value=2.5)", "int 2"},
		{"int(value=null)", "!no positional args or value specified"},
		{"int(1,value=2)", "!cannot use both position and named arguments"},
		{"int('1_0')", "int 10"},
		{"int('010')", "int 10"},
		{"int(' 5 ')", "int 5"},
		{"int('10.0')", "!invalid literal for int() with base 10: '10.0'"},
		{"int('')", "!invalid literal for int() with base 10: ''"},
		{"int([a,1])", "!invalid literal for int() with base 10: 'a'"},
		{"int(inf)", "!cannot convert float infinity to integer"},
		{"int(nan)", "!cannot convert float NaN to integer"},
		{"int(null)", "!null"},
		{"int({a:[1.5,{b:2.5}]})", "{str a:[int 1,{str b:int 2}]}"},
		{"float(sort(3,2,1))", "sweep 1.0 2.0 3.0"},
		{"float('1e3')", "float 1000.0"},
		{"float('-Infinity')", "float -inf"},
		{"float(nan)", "float nan"},
		{"float(x)", "!could not convert string to float: 'x'"},
		{"str(10.0)", "str 10.0"},
		{"str(null)", "!null"},
		{"str([1,[true,x]])", "[str 1,[str true,str x]]"},
		{"str(choice(1,b))", "sweep 1 b"},
		{"str(interval(0,1))", "!intervals cannot be cast to str"},
		{"bool(10.0)", "bool true"},
		{"bool(nan)", "bool true"},
		{"bool([0,null,tRuE])", "[bool false,bool false,bool true]"},
		{"bool('10')", "!cannot cast '10' to bool"},
		{"bool(range(3))", "!range can only be cast to int or float"},
		{"json_str({a:10,b:[1.5,null,true,'é\"']})", `str {"a": 10, "b": [1.5, null, true, "\u00e9\""]}`},
		{"json_str({1:a,true:b,1.5:c})", `str {"1": "b", "1.5": "c"}`},
		{"json_str(inf)", "str Infinity"},
		{"json_str('a/b')", `str "a/b"`},
		{"json_str(null)", "str null"},
		{"json_str(1,a)", `sweep 1 "a"`},
		{"json_str(range(2))", "!range can only be cast to int or float"},
		{"int(glob(*))", "!mismatch type argument"},

		{"choice(a)", "sweep a"},
		{"choice( 10 , [1,2] , {a:b} )", "sweep 10 [1,2] {a:b}"},
		{"choice(str(10))", "sweep 10"},
		{"choice(null,1)", "!mismatch type argument args[0]"},
		{"choice(sort(2,1))", "sweep 1 2"},
		{"choice(choice(1))", "!nesting choices is not supported"},
		{"choice(range(3))", "!mismatch type argument args[0]"},
		{"choice(a=1)", "!got an unexpected keyword argument 'a'"},
		{"range(stop=3,start=1)", "sweep 1 2"},
		{"range(3,null)", "sweep 0 1 2"},
		{"range(1,10,2)", "sweep 1 3 5 7 9"},
		{"range(1.0, 3.14)", "sweep 1.0 2.0 3.0"},
		{"range(0,1,0.1)", "sweep 0.0 0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8 0.9"},
		{"range(2,0,-0.5)", "sweep 2.0 1.5 1.0 0.5"},
		{"range(0,10,-1)", "sweep "},
		{"range()", "!missing a required argument: 'start'"},
		{"range(1,2,3,4)", "!too many positional arguments"},
		{"range('1')", "!mismatch type argument stop"},
		{"range(1,stap=2)", "!unexpected keyword argument 'stap' (did you mean step?)"},
		{"range(0,2,0)", "!invalid range values"},
		{"range(1,start=2)", "!multiple values for argument 'start'"},
		{"interval(0,x)", "!mismatch type argument end"},
		{"interval(0)", "!missing a required argument: 'end'"},
		{"glob([a*,1])", "!mismatch type argument include"},
		{"glob()", "!missing a required argument: 'include'"},

		{"sort(1)", "int 1"},
		{"sort({a:10})", "{str a:int 10}"},
		{"sort([2,3,1])", "[int 1,int 2,int 3]"},
		{"sort([2,true,0.5])", "[float 0.5,bool true,int 2]"},
		{"sort([[2],[1,5],[1]])", "[[int 1],[int 1,int 5],[int 2]]"},
		{"sort(list=[1,2,3], reverse=True)", "[int 3,int 2,int 1]"},
		{"sort(list=[])", "[]"},
		{"sort(sweep=choice(2,1))", "sweep 1 2"},
		{"sort(list=3)", "!mismatch type argument list"},
		{"sort(a,c,b,reverse=true)", "sweep c b a"},
		{"sort(3,2,str(1))", "!'<' not supported between"},
		{"sort([1],[2])", "!invalid arguments"},
		{"sort(null)", "!mismatch type argument args[0]"},
		{"sort(1,2,reverse=1)", "!mismatch type argument reverse"},
		{"sort()", "!empty"},
		{"sort(range(9,0,-1))", "sweep 1 2 3 4 5 6 7 8 9"},
		{"sort(range(0,5,2),reverse=true)", "sweep 4 2 0"},
		{"sort(range(7,0,-3))", "sweep 1 4 7"},
		{"sort(range(1.3,0,-0.5))", "sweep 0.3 0.8 1.3"},
		{"sort(range(0,0.3,0.1),reverse=true)", "sweep 0.2 0.1 0.0"},
		{"sort(range(0,1),reverse=true)", "sweep 0"},
		{"sort(sort(range(1,4),reverse=true))", "sweep 1 2 3"},
		{"sort(interval(0,1))", "!mismatch type argument"},
		{"shuffle(5)", "[int 5]"},
		{"shuffle(list=[7])", "[int 7]"},
		{"shuffle(glob(*))", "!mismatch type argument"},

		{"tag(x,y,choice(1,2))", "sweep 1 2"},
		{"tag(x,sweep=range(2))", "sweep 0 1"},
		{"tag(sweep=range(2))", "!not enough arguments to tag, must take at least a sweep"},
		{"tag(1,range(2))", "!tag arguments type must be string"},
		{"tag(x,y)", "!last argument to tag() must be a choice(), range() or interval()"},
		{"tag(x,glob(*))", "!last argument to tag() must be a choice(), range() or interval()"},

		{"extend_list([1,2],x)", "extend [1,2] x"},
		{"[extend_list(1)]", "!extend_list"},
		{"[choice(1,2)]", "!sweep inside a list"},
		{"{a:range(3)}", "!sweep inside a mapping"},
		{"1,choice(2,3)", "!sweep"},
		{"sort(1,reverse=true,2)", "!positional argument follows keyword argument"},
		{"choise(1)", "!Unknown function 'choise' (did you mean choice?)"},
		{"retry(2)", "!'k=\"retry(2)\"'"},
	} {
		t.Run(tc.in, func(t *testing.T) {
			o, err := ParseOverride("k=" + tc.in)
			got := ""
			switch {
			case err != nil:
				got = "!" + err.Error()
			case o.value.isSweep():
				vals, err := o.value.values(nil)
				if err != nil {
					t.Fatal(err)
				}
				got = "sweep " + strings.Join(vals, " ")
				got = strings.ReplaceAll(got, `\ `, " ")
			case o.value.kind == extendElem:
				got = "extend"
				for _, x := range o.value.items {
					got += " " + x.reprint()
				}
			default:
				got = typed(o.value)
			}
			if got != tc.want && !(strings.HasPrefix(tc.want, "!") && strings.HasPrefix(got, "!") && strings.Contains(got, tc.want[1:])) {
				t.Errorf("%s\n got %s\nwant %s", tc.in, got, tc.want)
			}
		})
	}
}

func TestTagsSurvive(t *testing.T) {
	for in, want := range map[string]string{
		"tag(a,b,interval(0,1))":        "[a b] 0.0 1.0 ",
		"int(tag(log,interval(1,9)))":   "[log] 1 9 int",
		"tag(log,int(interval(1,9.7)))": "[log] 1 9 int",
		"tag(x,tag(y,interval(0,1)))":   "[x] 0.0 1.0 ",
		"float(int(interval(0,1)))":     "[] 0.0 1.0 float",
	} {
		o, err := ParseOverride("k=" + in)
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		e := o.value
		if got := fmt.Sprint(e.tags, " ", e.rng[0].node.pyStr(), " ", e.rng[1].node.pyStr(), " ", e.cast); got != want {
			t.Errorf("%s: got %q, want %q", in, got, want)
		}
	}
}

// Quoted text is unescaped only before quotes, and re-prints as it was written.
func TestQuotedTextRoundTrip(t *testing.T) {
	for in, want := range map[string]string{
		`'foo \'bar'`: `foo 'bar`, `"foo \"bar"`: `foo "bar`, `'foo \\\'bar'`: `foo \'bar`,
		`'foo\bar'`: `foo\bar`, `'foo\\bar'`: `foo\\bar`, `'foo bar\\'`: `foo bar\`,
		`'foo \\\\\'bar\' \\\\\\'`: `foo \\'bar' \\\`, "'\t []{},=+~'": "\t []{},=+~",
		`"[1,'2',3]"`: `[1,'2',3]`, `'null'`: `null`, `'a ${b}'`: `a ${b}`, `'a \${b}'`: `a \${b}`,
		`'a \'\${b}\''`: `a '\${b}'`, `'a \\${b}'`: `a \\${b}`, `'שלום'`: `שלום`, `''`: ``, `'\\'`: `\`, `"'"`: `'`,
		`'${oc.env:"\' }"}'`: `${oc.env:"' }"}`,
	} {
		o, err := ParseOverride("k=" + in)
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if o.value.node.Text != want || o.value.reprint() != in {
			t.Errorf("%s: got %q, re-printed %s; want %q", in, o.value.node.Text, o.value.reprint(), want)
		}
	}
}

func TestUnquotedTextReprints(t *testing.T) {
	for in, want := range map[string]string{
		`k=\\\(\)\[\]\{\}\:\=\ \	\,`: `\\\(\)\[\]\{\}\:\=\ \	\,`,
		"k=['a b', 2, 3]":            "['a b',2,3]",
		"k={ white  space\t: 2}":     `{white\ \ space:2}`,
		"k={123id: 0}":               "{123id:0}",
		`k={a/-\+.$%*@?|: 1}`:        `{a/-\\+.$%*@?|:1}`,
		"k=c:\\foo\\a-b.txt":         `c\:\\foo\\a-b.txt`,
		"k=${a}":                     `$\{a\}`,
		"k=-0":                       "0",
		"k=-0.0":                     "-0.0",
		"k=1_0.5":                    "10.5",
		"k=+.5e+0_1":                 "5.0",
		"k=-nan":                     "nan",
		"k=1e22":                     "1e+22",
		"k=inf":                      "inf",
		"k=a  b":                     `a\ \ b`,
		"k=xyz_${a.b}":               `xyz_$\{a.b\}`,
	} {
		o, err := ParseOverride(in)
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if got := o.value.reprint(); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

func TestOverrideKeysRefused(t *testing.T) {
	for _, in := range []string{"$foo/bar=x", "a/b.c=1", "a.1b=x", "a.01=x", "a@b:c=1", "a:b=1", "-a=1", "a[0]=1", "a.[0]=1", "+~a=1",
		"~+a", "+++a=1",
		"a@b@c=1", "a//b=1", "a/=1", "/a=1", "a.=1", "key=[]aa", `key=['a\', 'b']`, "key={'a': " +
			"1}", `key={" a ": 0}`, "a=\"x", "a='b\\'", "a=}", "a=[1 " +
			"2", "a={x}", "a={x:1,}", "a={:1}", "a=f(", "a=int(1", "a=int(1,)", "a=int(,1)",
		"a=~", "a=!x", "a=#x", "a=x;y", "a=x&y", "a=<x", "a=x^y", "a=x`y", "a=x\ny"} {
		if o, err := ParseOverride(in); err == nil {
			t.Errorf("%q: got key %q value %s, want an error", in, o.Key, o.value.reprint())
		} else if !strings.Contains(err.Error(), in) || !strings.Contains(err.Error(), "column ") {
			t.Errorf("%q: the error lacks the override or the column: %v", in, err)
		}
	}
}

// TestReading compares with PyYAML's libyaml loader under OmegaConf's rules.
func TestReading(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"a question mark inside flow text", "{url: http://h/p?q=1, b: [x?, y?z]}", "url: http://h/p?q=1\nb:\n- x?\n- y?z\n"},
		{"a missing value inside brackets", "a: [???]", "!must be quoted: '???'"},
		{"a quoted missing value inside brackets", "a: ['???']", "a:\n- ???\n"},
		{"a colon without a blank is part of a key", "{a:1}", "a:1: null\n"},
		{"a colon at the end of flow text", "[a:]", "!found unexpected ':'"},
		{"a colon at the end of a flow key", "{a:}", "!found unexpected ':'"},
		{"a colon before a question mark in flow text", "{a:?b}", "!found unexpected ':'"},
		{"an anchor beside the merge key", "b: &b {x: 1, y: 2}\n<<: *b\nx: 3\n", "x: 3\n'y': 2\nb:\n  x: 1\n  'y': 2\n"},
		{"the first of a list of merges wins", "<<: [{a: 1}, {a: 2, b: 3}]", "a: 1\nb: 3\n"},
		{"the last of several merge keys wins", "<<: {a: 1}\n<<: {a: 2}\n", "a: 2\n"},
		{"merging text", "<<: x", "!<< of text"},
		{"keys that Python takes for one", "1: a\ntrue: b\n", "1: b\n"},
		{"an int and a text key", "1: a\n'1': b\n", "1: a\n'1': b\n"},
		{"duplicate text keys in a list", "- {a: 1, a: 2}", "!found duplicate key a"},
		{"a null key", "~: 1", "!null as a key"},
		{"a list as key", "[a]: 1", "!a list as a key"},
		{"a redefined anchor", "a: &x 1\nb: &x 2\n", "!found duplicate anchor &x"},
		{"an alias before its anchor", "a: *x", "!"},
		{"a recursive alias", "a: &x [*x]", "!refers to itself"},
		{"two documents", "a: 1\n---\nb: 2\n", "!a second YAML document"},
		{"a document end", "a: 1\n...\n", "a: 1\n"},
		{"a version directive", "%YAML 1.2\n---\na: yes\n", "a: true\n"},
		{"tags of the core schema", "a: !!str 1\nb: !!int '3'\nc: !!float 1\nd: !!bool 'on'\ne: !!null x\n",
			"a: '1'\nb: 3\nc: 1.0\nd: true\ne: null\n"},
		{"a wrong tag", "a: !!int x", "!\"x\" is not an integer, as its tag !!int says"},
		{"an unknown tag", "a: !x 1", "!unknown tag !x"},
		{"python tags", "a: !!python/object/apply:os.system [x]", "!unknown tag"},
		{"an equals sign alone", "a: =", "!has a meaning of its own"},
		{"tabs behind the colon", "a:\tb", "a: b\n"},
		{"block scalars", "a: |\n  x\n\n  y\nb: >-\n  p\n  q\n", "a: 'x\n\n\n  y\n\n  '\nb: p q\n"},
		{"a number with a dot underscore", "a: ._5", "a: ._5\n"},
		{"a time inside a key", "12:30: a", "750: a\n"},
		{"digits of other scripts are quoted", "a: '٣'", "a: '٣'\n"},
		{"timestamps are quoted, what only looks so is not", "a: ['2001-12-14t21:59:43.10-05:00', '2001-12-14x']",
			"a:\n- '2001-12-14t21:59:43.10-05:00'\n- 2001-12-14x\n"},
		{"a syntax interpolation error names the place", "a:\n  b: ${x\n", "!f.yaml:2:6: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n, err := ParseYAML("f.yaml", []byte(tc.in))
			got := ""
			if err != nil {
				got = "!" + err.Error()
			} else {
				got = n.YAML()
			}
			if got != tc.want && !(strings.HasPrefix(tc.want, "!") && strings.HasPrefix(got, "!") && strings.Contains(got, tc.want[1:])) {
				t.Errorf("%q\n got %s\nwant %s", tc.in, got, tc.want)
			}
		})
	}
}

// TestInterpolationRules resolves v inside a tree; the wanted values come from OmegaConf.
func TestInterpolationRules(t *testing.T) {
	const tree = `
a: 1
b: foo
c: {p: '${a}', q: 1}
d: {x: 3, y: {w: '${..x}', v: 7}, l: ['${a}', 4], z: null}
l: [5, '${b}', z]
m: ???
n0: ${m}
li: [{k: 1}, {k: '${b}'}]
dots: d.y
num: 1
res: select
f: 1.5
t: true
k-1: dash
$s: dollar
a.b: dotted
"": empty
1: int
`
	env := &environment{now: time.Unix(0, 0), warn: func(string) {}, getenv: func(k string) (string, bool) {
		v, ok := map[string]string{"SET": "val", "EMPTY": "", "ODD": "${a}"}[k]
		return v, ok
	}}
	for _, tc := range []struct{ in, want string }{
		{"${l[-1]}", "z"}, {"${l.0}", "5"}, {"${[d].y}", "w: 3\n'v': 7"}, {"${d[y][w]}", "3"}, {"${ d.x }", "3"},
		{"${${dots}.v}", "7"}, {"${${dots}}", "w: 3\nv: 7"}, {"${l[${num}]}", "foo"}, {"${d.${b}}", "!Interpolation key 'd.foo' not found"},
		{"${l.${f}}", "!should give text or an integer"}, {"${l.${t}}", "!should give text or an integer"}, {"${li.${num}.k}", "foo"},
		{"${k-1}${$s}", "dashdollar"}, {"${a.b}", "!not a container"}, {"${1}", "!not found"},
		{"${b}-${d.z}-${t}-${f}", "foo-None-True-1.5"},
		{"x ${l} ${li}", "'x [5, ''foo'', ''z''] [{''k'': 1}, {''k'': ''foo''}]'"},
		{"\\${a}", "${a}"}, {"\\\\${a}", "\\1"}, {"\\\\\\${a}", "\\${a}"}, {"\\a\\\\b", "\\a\\\\b"}, {"$a {b} }", "$a {b} }"},
		{"${m}", "???"}, {"x${m}", "???"}, {"${n0}", "???"},
		{"${oc.env:SET}", "val"}, {"${oc.env:EMPTY,x}", "''"}, {"${oc.env:ODD}", "${a}"}, {"${oc.env:NO}",
			"!environment variable 'NO' not found"},
		{"${oc.env:NO,null}", "null"}, {"${oc.env:NO,1e3}", "'1000.0'"}, {"${oc.env:NO,true}", "'True'"}, {"${oc.env:NO,[1, a]}",
			"'[1, ''a'']'"}, {"${oc.env:NO,''}", "''"}, {"${oc.env:1}", "!want NAME"}, {"${oc.env:}", "!want NAME"},
		{"${oc.decode:'1e3'}", "1000.0"}, {"${oc.decode:'[a, 2]'}", "- a\n- 2"}, {"${oc.decode:'${a}'}", "1"}, {"${oc.decode:null}",
			"null"}, {"${oc.decode:1}", "!want text"},
		{"${oc.decode:'null'}", "null"}, {"${oc.decode:' 1'}", "' 1'"}, {"${oc.decode:''}", "!unexpected end"}, {"${oc.decode:'a,b'}",
			"!want the end"}, {"${oc.decode:'x y'}", "x y"}, {"${oc.decode:'\\${d.x}'}", "3"},
		{"${oc.select:d.x}", "3"}, {"${oc.select:no,${a}}", "1"}, {"${oc.select:m,5}", "5"}, {"${oc.select:no}",
			"null"}, {"${oc.select:a.b.c,5}", "5"}, {"${oc.select:l.x,5}", "!not an int"}, {"${oc.select:.b}", "foo"}, {"${oc.select:1}", "!as " +
			"text"}, {"${oc.select:'l[-1]'}", "z"},
		{"${oc.create:{p: ${a}, q: [1,,x]}}", "p: 1\nq:\n- 1\n- ''\n- x"}, {"${oc.create:'[1, {a: b}]'}", "- 1\n- a: b"}, {"${oc.create:foo}",
			"foo: null"}, {"${oc.create:5}", "!unsupported type"}, {"${oc.create:null}", "null"},
		{"${oc.dict.keys:d}", "- x\n- 'y'\n- l\n- z"}, {"${oc.dict.values:c}", "- 1\n- 1"}, {"${oc.dict.values:.c}",
			"- 1\n- 1"}, {"x${oc.dict.values:c}", "x['${c.p}', '${c.q}']"}, {"${oc.dict.keys:l}", "!want a " +
			"mapping"}, {"${oc.dict.keys:no}", "!not found"},
		{"${oc.deprecated:d.x}", "3"}, {"${oc.deprecated:no}", "!not found"}, {"${oc.deprecated:a,[1]}", "!as the message"},
		{"${oc.${res}:a}", "1"}, {"${${num}:a}", "!the name of a resolver must be text"}, {"${oc.selct:a}",
			"!unsupported interpolation type oc.selct (did you mean oc.select?)"},
		{"${hydra:a,b}", "!want a path"}, {"${hydra:no}", "null"}, {"${now:%Y%%}", "1970%"},
		{"${nope}", "!Interpolation key 'nope' not found"}, {"${d.xx}", "!Interpolation key 'd.xx' not found (did you mean d.x?)"}, {"${..a}",
			"!too many dots"}, {"${v}", "!Recursive interpolation detected"}, {"${d.x.y}", "!is not a container and thus cannot contain 'y'"},
		{"${a", "!not closed"}, {"${}", "!want a key"}, {"${a b}", "!"}, {"${a.}", "!want a key"}, {"${.}", "!want a key"}, {"${a:'x}",
			"!not closed"}, {"${oc.env:a=b}", "!"}, {"${oc.env:(x)}", "!"}, {"${oc.env:'x' y}", "!"}, {"${x${y}}", "!"},
	} {
		t.Run(tc.in, func(t *testing.T) {
			n, err := ParseYAML("f", []byte(tree))
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			v, err := newString(tc.in)
			if err == nil {
				n = n.set(strKey("v"), v)
				r := newResolver(n, env)
				var out *Node
				if out, err = r.expand(r.root); err == nil {
					got = strings.TrimSpace(out.Get("v").YAML())
				}
			}
			if err != nil {
				got = "!" + err.Error()
			}
			want := strings.ReplaceAll(tc.want, "\nv: ", "\n'v': ")
			want = strings.ReplaceAll(want, "'v'", "v")
			if got != want && !(strings.HasPrefix(want, "!") && strings.HasPrefix(got, "!") && strings.Contains(got, want[1:])) {
				t.Errorf("%s\n got %s\nwant %s", tc.in, got, want)
			}
		})
	}
}

// Containers inside text are printed as far as they have been resolved by then.
func TestTextOfContainersFollowsTheOrder(t *testing.T) {
	n, err := ParseYAML("f", []byte("early: 'x ${l}'\nl: ['${a}', {k: '${a}'}]\nlate: 'x ${l}'\na: 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	r := newResolver(n, &environment{})
	out, err := r.expand(r.root)
	if err != nil {
		t.Fatal(err)
	}
	if got := out.Get("early").Text; got != "x ['${a}', {'k': '${a}'}]" {
		t.Errorf("before the list: %s", got)
	}
	if got := out.Get("late").Text; got != "x [1, {'k': 1}]" {
		t.Errorf("behind the list: %s", got)
	}
}

func TestMergeRules(t *testing.T) {
	for _, tc := range []struct{ name, dst, src, want string }{
		{"lists replace", "a: [1, 2]", "a: [3]", "a:\n- 3\n"},
		{"null replaces a mapping", "a: {x: 1}", "a: null", "a: null\n"},
		{"a mapping replaces null and text", "a: null\nb: t", "a: {x: 1}\nb: {x: 1}", "a:\n  x: 1\nb:\n  x: 1\n"},
		{"??? keeps what is there", "a: {x: 1}\nb: 2", "a: ???\nb: ???\nc: ???", "a:\n  x: 1\nb: 2\nc: ???\n"},
		{"a mapping over a list", "a: [1]", "a: {x: 1}", "!Cannot merge incompatible container types"},
		{"a list over a mapping", "a: {x: {y: 1}}", "a: {x: [1]}", "!a.x: Cannot merge incompatible container types"},
		{"an interpolation replaces a mapping", "a: {x: 1}", "a: ${b}", "a: ${b}\n"},
		{"a mapping over a link copies the target", "a: ${b}\nb: {x: 1, y: '${.x}'}", "a: {x: 2}",
			"a:\n  x: 2\n  'y': ${.x}\nb:\n  x: 1\n  'y': ${.x}\n"},
		{"the target as the merge has left it by then", "b: {x: 1}\na: ${b}", "b: {y: 2}\na: {z: 3}",
			"b:\n  x: 1\n  'y': 2\na:\n  x: 1\n  'y': 2\n  z: 3\n"},
		{"relative links too", "d: {b: {x: 1}, a: '${.b}'}", "d: {a: {y: 2}}", "d:\n  b:\n    x: 1\n  a:\n    x: 1\n    'y': 2\n"},
		{"a broken link is replaced", "a: ${no}", "a: {x: 1}", "a:\n  x: 1\n"},
		{"??? over a link copies the target", "a: ${b}\nb: {x: 1}", "a: ???", "a:\n  x: 1\nb:\n  x: 1\n"},
		{"text over a link", "a: ${b}\nb: {x: 1}", "a: t", "a: t\nb:\n  x: 1\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dst, err1 := ParseYAML("dst", []byte(tc.dst))
			src, err2 := ParseYAML("src", []byte(tc.src))
			if err1 != nil || err2 != nil {
				t.Fatal(err1, err2)
			}
			n, err := merge(dst, src, "", &merger{env: &environment{}})
			got := ""
			if err != nil {
				got = "!" + err.Error()
			} else {
				got = n.YAML()
			}
			if got != tc.want && !(strings.HasPrefix(tc.want, "!") && strings.Contains(got, tc.want[1:])) {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

func TestEditRules(t *testing.T) {
	const base = "a: 1\nd: {x: 3, r: '${c}'}\nc: {k: 7}\nl: [5, {k: 1}]\nm: ???\nn: null\nrd: ${d}\nrr: ${rd}\nrl: ${l}\nbr: ${no}\nrm: ${m}\n"
	for _, tc := range []struct{ override, want string }{
		{"rd.x=4", "d:\n  x: 4\n"}, {"rr.r.k=8", "c:\n  k: 8\n"}, {"rl.1.k=2", "- k: 2\n"}, {"+rd.q=1", "q: 1\n"},
		{"rd={x:9}", "rd:\n  x: 9\n"}, {"rd=5", "rd: 5\n"}, {"d={r:{k:9}}", "d:\n  x: 3\n  r:\n    k: 9\nc:\n  k: 7\n"}, {"d={r:{n:9}}",
			"!Could not override 'd'"},
		{"rl=extend_list(7)", "- k: 1\n- 7\n"}, {"br=1", "br: 1\n"}, {"br={x:1}", "br:\n  x: 1\n"}, {"br.x=1", "!not found"}, {"~br",
			"!not found"}, {"+br={x:1}", "!not found"},
		{"~rm", "!missing"}, {"~rd", "rr: ${rd}\n"}, {"~rd.x", "d:\n  r: ${c}\n"}, {"~m=???", "'n': null"}, {"~m=1",
			"!The value of 'm' is ??? and not 1."},
		{"~a=null", "!is 1 and not None."}, {"~n=null", "m: ???\nrd"}, {"~a=1.0", "d:\n"}, {"~a=true", "d:\n"}, {"~a='1'",
			"!is 1 and not 1."}, {"~c={k:7}", "l:\n"}, {"~l.0=5", "l:\n- k: 1\n"}, {"~l.x", "!Could not delete from config. 'l.x' does not " +
			"exist."}, {"~a.b", "!Could not delete from config. 'a.b' does not exist."}, {"~dd", "!does not exist. (did you mean d?)"},
		{"+l.5=1", "!has no item 5"}, {"l.x=1", "!has no item x"}, {"+m.x=1", "m:\n  x: 1\n"}, {"+n.x=1", "'n':\n  x: 1\n"}, {"m.x=1",
			"!Could not override 'm.x'"}, {"+a={x:1}", "a:\n  x: 1\n"}, {"+a=[1]", "a:\n- 1\n"}, {"+a=2", "!Could not append to config. An item " +
			"is already at 'a'"}, {"l.1={k:2}", "- k: 2\n"}, {"l.1={j:2}", "!Could not override"}, {"++l.1={j:2}", "  j: 2\n"}, {"+l.0.x=1", "- " +
			"x: 1\n"},
		{"a=extend_list(1)", "!Could not append to config list. The existing value of 'a' is 1 which is not a list."}, {"d={x:???}",
			"x: 3\n"}, {"l={a:1}", "!Cannot merge incompatible container types"}, {"d=[1]", "!Cannot merge incompatible container " +
			"types"}, {"d={}", "x: 3\n"},
	} {
		t.Run(tc.override, func(t *testing.T) {
			n, err := ParseYAML("f", []byte(base))
			if err != nil {
				t.Fatal(err)
			}
			o, err := ParseOverride(tc.override)
			if err != nil {
				t.Fatal(err)
			}
			ed := &editor{root: n, env: &environment{}, hydra: hydraSchema(t)}
			got := ""
			if err := ed.apply(o); err != nil {
				got = "!" + err.Error()
			} else {
				got = ed.root.YAML()
			}
			if strings.HasPrefix(tc.want, "!") != strings.HasPrefix(got, "!") || !strings.Contains(got, strings.TrimPrefix(tc.want, "!")) {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}
