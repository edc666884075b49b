package chat

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// renderHostile parses and renders a source; it is a test failure to take long, to take much memory or to say more than a line.
func renderHostile(t testing.TB, source string) (string, error) {
	t.Helper()
	msgs := []Message{{Role: "system", Text: "s"}, {Role: "user", Text: strings.Repeat("hello ", 50)},
		{Role: "user", Parts: []Part{{Type: Text, Text: "x"}, {Type: Image, Path: "a.png"}}}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin := time.Now()
	template, err := Parse(source)
	text := ""
	if err == nil {
		text, err = template.Render(msgs, RenderOptions{AddGenerationPrompt: true})
	}
	took := time.Since(begin)
	runtime.ReadMemStats(&after)
	if shown := source[:min(len(source), 200)]; took > 3*time.Minute || after.TotalAlloc-before.TotalAlloc > 8<<30 || after.Sys > 4<<30 {
		t.Errorf("%.200s: %v, %d MB", shown, took, (after.TotalAlloc-before.TotalAlloc)>>20)
	}
	if err != nil && (strings.Contains(err.Error(), "runtime error") || strings.Contains(err.Error(), "reflect")) {
		t.Errorf("%.200s: words of the library's insides: %q", source, err)
	}
	if err != nil && (strings.ContainsAny(err.Error(), "\n") || len(err.Error()) > 800) {
		t.Errorf("%.200s: more than a line: %q", source, err)
	}
	return text, err
}

// No template takes the program down: too much of anything is one line.
func TestHostileTemplates(t *testing.T) {
	nest := func(open, in, end string, n int) string { return strings.Repeat(open, n) + in + strings.Repeat(end, n) }
	for _, tc := range []struct{ name, source, want string }{
		{"a macro that calls itself", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "statements and macros in each other"},
		{"two macros that call each other",
			"{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{% if true %}{{ f() }}{% endif %}{% endmacro %}{{ f() }}",
			"statements and macros in each other"},
		{"a macro that is handed to itself", "{% macro f(g) %}{{ g(g) }}{% endmacro %}{{ f(f) }}", "statements and macros in each other"},
		{"a macro in a namespace", "{% set ns = namespace() %}{% macro f() %}{{ ns.f() }}{% endmacro %}{% set ns.f = f %}{{ ns.f() }}", ""},
		{"itself as its base", "{% extends '/template' %}", "'extends' not found"},
		{"itself included", "{% include '/template' %}", "'include' not found"},
		{"itself imported", "{% import '/template' as t %}", "'import' not found"},
		{"a block that shows itself", "{% block a %}{{ self.a() }}{% endblock %}", "'block' not found"},
		{"a caller that calls itself", "{% set ns = namespace() %}{% macro f() %}{% set ns.c = caller %}{{ caller() }}{% endmacro %}{% call " +
			"f() %}{{ ns.c() }}{% endcall %}", "'call' not found"},
		{"a loop that calls itself", "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "recursive"},
		{"brackets", "{{ " + nest("(", "1", ")", 50_000) + " }}", "in each other"},
		{"lists", "{{ " + nest("[", "1", "]", 50_000) + " }}", "in each other"},
		{"blocks", nest("{% if true %}", "x", "{% endif %}", 4000), "in each other"},
		{"loops in blocks", nest("{%- for a in [1] -%}", "x", "{%- endfor -%}", 3000), "in each other"},
		{"more than a whole number holds", "{{ 9223372036854775807 * 2 }}", "9223372036854775807 times 2"},
		{"not not not", "{{ " + strings.Repeat("not ", 30_000) + "1 }}", ""},
		{"minus minus", "{{ " + strings.Repeat("- ", 60_000) + "1 }}", ""},
		{"conditions in conditions", "{{ " + strings.Repeat("1 if 0 else ", 9000) + "1 }}", ""},
		{"powers", "{{ " + strings.Repeat("2**", 10_000) + "1 }}", ""},
		{"a long sum", "{{ " + strings.Repeat("1+", 20_000) + "1 }}", ""},
		{"methods on methods", "{{ 'x'" + strings.Repeat(".strip()", 60) + " }}", "asks for too much"},
		{"methods on members", "{{ 'x'" + strings.Repeat(".split()[0]", 60) + " }}", "asks for too much"},
		{"elif after elif", "{% if 0 %}" + strings.Repeat("{% elif 0 %}", 9000) + "{% endif %}", ""},
		{"too long", strings.Repeat("x", 1<<20), "want at most"},
		{"a long range", "{% for i in range(1000000000000) %}x{% endfor %}", "a range of 1000000000000 numbers"},
		{"a long range that is left", "{% for i in range(1000000000000) %}{% break %}{% endfor %}", "a range of"},
		{"a range down", "{% for i in range(0, -1000000000000, -1) %}x{% endfor %}", "a range of"},
		{"loops in loops", "{% for a in range(10000) %}{% for b in range(10000) %}{% for c in range(10000) %}" +
			"{% endfor %}{% endfor %}{% endfor %}", "asks for too much"},
		{"loops over texts", "{% set x = 'a' * 100000 %}{% for a in x %}{% for b in x %}{% endfor %}{% endfor %}", "steps"},
		{"much output", "{% set x = 'a' * 1000000 %}{% for a in range(100) %}{{ x }}{% endfor %}", "MB of output"},
		{"much output of a macro", "{% macro f() %}{% for a in range(100) %}{{ messages[1].content * 10000 }}{% endfor %}{% endmacro %}{% " +
			"set x = f() %}", "MB of output"},
		{"much output of a set", "{% set x %}{% for a in range(100) %}{{ 'a' * 1000000 }}{% endfor %}{% endset %}", "MB of output"},
		{"center", "{{ 'a'.center(10000000000) }}{{ 'a'|center(10000000000) }}", "center"},
		{"center by a filter", "{{ 'a'|center(10000000000) }}", "center"},
		{"indent", "{{ 'a\\nb'|indent(10000000000) }}", "indent"},
		{"a number by name", "{{ 'a'|center(width=10000000000) }}", "center"},
		{"a filter by name", "{{ ['a']|map('center', 10000000000)|list }}", "map"},
		{"a filter block", "{% filter center(10000000000) %}a{% endfilter %}", "center"},
		{"zfill", "{{ 'a'.zfill(10000000000) }}", "zfill"},
		{"a text many times", "{{ 'a' * 10**10 }}", "1 bytes 10000000000 times"},
		{"a text many times many times", "{{ 'a' * 10000 * 10000 * 10000 }}", "times"},
		{"a list many times", "{{ [0] * 3 }}", "* of a list: want two numbers"},
		{"many texts in each other", "{{ (('a' * 4000000) ~ ('a' * 4000000)) * 10 }}", "times"},
		{"a list many times", "{{ [1] * 10**10 }}", ""},
		{"a format", "{{ '%1000000000d'|format(1) }}", "format"},
		{"formats", "{{ ('%999999d' * 5000)|format(1) }}", "format"},
		{"a format method", "{{ '{:1000000000}'.format(1) }}", "format"},
		{"replace", "{% set x = 'a' * 1000000 %}{{ x|replace('a', x) }}", "replace"},
		{"replace method", "{% set x = 'a' * 1000000 %}{{ x.replace('', x) }}", "replace"},
		{"join", "{% set x = 'a' * 100000 %}{{ x|join(x) }}", "join"},
		{"join method", "{% set x = 'a' * 100000 %}{{ x.join(x) }}", "join"},
		{"doubling", "{% set ns = namespace(x='a') %}{% for i in range(100) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
			"a value of more than 16 MB"},
		{"doubling by +", "{% set ns = namespace(x='a') %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
			"a value of more than 16 MB"},
		{"doubling of lists", "{% set ns = namespace(x=[1]) %}{% for i in range(100) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
			"a value of more than 16 MB"},
		{"doubling of dicts", "{% set ns = namespace(x=1) %}{% for i in range(100) %}{% set ns.x = {'a': ns.x, 'b': ns.x} %}{% endfor %}{{ " +
			"ns.x|tojson }}", "a value of more than 16 MB"},
		{"lists in lists", "{% set ns = namespace(x=1) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
			"a value with more than"},
		{"a namespace that holds itself", "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}", "a value with more than"},
		{"a list that holds itself", "{% set l = [] %}{% do l.append(l) %}{{ l }}", ""},
		{"a list of itself in a loop", "{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
			"a value of more than 16 MB"},
		{"one expression of many texts", "{% set x = 'a' * 10000000 %}{{ x" + strings.Repeat(" ~ x", 5000) + " }}",
			"a value of more than 16 MB"},
		{"one list of many texts", "{% set x = 'a' * 10000000 %}{{ [x" + strings.Repeat(", x", 5000) + "] }}",
			"a value of more than 16 MB"},
		{"one comparison of many texts", "{% set x = 'a' * 10000000 %}{% set l = [x" + strings.Repeat(", x", 5000) + "] %}{{ l == l }}",
			"a value of more than 16 MB"},
		{"a message that it makes up", "{{ raise_exception('x' * 100000) }}", "xxx"},
		{"lipsum", "{{ lipsum(1000000000) }}", ""},
		{"the rest of a division by zero", "a\n{{ 1%0 }}", "line 2: % by zero"},
		{"a division by zero", "{{ 1.5 / 0 }}", "line 1: / by zero"},
		{"a whole division by nothing", "{{ 1 // none }}", "line 1: // of nothing: want two numbers"},
		{"a text formatted", "{{ '%s' % 1 }}", "% of a text: want two numbers (a text is formatted by |format)"},
		{"a cycle of nothing", "\n\n{{ cycler().next() }}", "line 3: a value of a kind that"},
		{"attributes of a text", "{% if true %}\n{{ 'a'|xmlattr }}{% endif %}", "line 2: a value of a kind that"},
		{"a number as a key", "{{ 0 in messages[0] }}", "line 1: a value of a kind that"},
		{"the largest of nothing", "{{ [1, nothing]|max }}", "line 1: a value of a kind that"},
		{"a negative repetition", "{{ 'a' * -1 }}", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text, err := renderHostile(t, tc.source)
			if tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %.100q, %v; want %q", text, err, tc.want)
			}
		})
	}
}

// Division is Python's: what the library rounds to zero rounds down, as in the Jinja2 that the model was made with.
func TestDivisionAsInJinja(t *testing.T) {
	// jinja2.Template("{{ -7 // 2 }} …").render() of Jinja2 3.1
	const source = "{{ -7 // 2 }} {{ 7 // -2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 6 % 3 }} {{ 7.5 % 2 }} {{ -7.5 // 2 }} {{ 7 / 2 }}" +
		" {{ true % 2 }} {{ 2 + 7 // 2 * 3 % 5 }} {{ 9007199254740993 * 1 }} {{ 9007199254740993 // -1 }} {{ 9007199254740993 % 10 }}"
	const want = "-4 -4 2 -2 0 1.5 -4.0 3.5 1 6 9007199254740993 -9007199254740993 3"
	if got, err := renderHostile(t, source); got != want || err != nil {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

// Nothing is two things, as in Jinja2: none, and what is not defined.
func TestNothingAsInJinja(t *testing.T) {
	for source, want := range map[string]string{ // as transformers' apply_chat_template renders them
		"{% if messages[0].zz is none %}t{% endif %}":                                                                  "",
		"{% if messages[0].zz is not none %}n{% endif %}{% if zz != none %}m{% endif %}":                               "nm",
		"{% if messages[0]['name'] != none %}n{% endif %}{{ none == none }}{{ zz == yy }}{{ zz == none }}":             "nTrueTrueFalse",
		"{% if tools is none and tools is defined and documents is none and zz is not defined %}t{% endif %}":          "t",
		"{% set x = none %}{% set ns = namespace(y=none) %}{% if x is none and ns.y is none %}t{% endif %}":            "t",
		"{{ messages[0].get('name') }} {{ messages[0].get('role') }} {{ messages[0].get('name', 'x') }}":               "None system x",
		"{{ 'a' ~ none }} {{ 'a' ~ zz }} {{ zz }} {{ none if true else 1 }} {{ 1 if false else none }}":                "aNone a  None None",
		"{{ none|default('x') }} {{ None|d('x') }} {{ none|d('x', true) }}":                                            "None None x",
		"{{ zz|default('x') }} {{ zz|default(none) }}":                                                                 "x None",
		"{{ [] | first is defined }}{{ ([] | last) is defined }}{{ [1, 2] | first }}{{ '' | first }}{{ 'ab' | last }}": "FalseFalse1b",
		"{{ 3 * 'ab' }}{{ 'ab' * 2 }}{{ 'ab' * -1 }}{{ true * 3 }}{{ 2.5 * 2 }}":                                       "abababab" + "ab35.0",
		"{% if {} %}t{% endif %}{{ {} or 'e' }}{% set d = {} %}{{ d is mapping }}{{ d.k }}{{ d }}":                     "eTrue{}",
		"{{ [none]|tojson }} {{ {}|tojson }} {{ not none }}":                                                           "[null] {} True",
		"{{ 0.5|round|int }} {{ 1.5|round }} {{ 2.675|round(2) }} {{ 3|round }}":                                       "0 2.0 2.67 3",
		"{{ 2.1|round(method='ceil') }} {{ 0.1|round(10000000000) }}":                                                  "3.0 0.1",
		"{{ (1 < 3) == (2 < 3) }}{{ 1 < 3 and 3 < 2 }}{{ [1 < 3, 3 < 2][0] }}{{ 1 if 1 < 3 else 3 < 2 }}":              "TrueFalseTrue1",
		"{% if 'a' in 'ab' and 'a' not in 'b' %}t{% endif %}{% for x in [1] if x == 1 %}{{ x }}{% endfor %}":           "t1",
	} {
		if got, err := renderHostile(t, source); got != want || err != nil {
			t.Errorf("%s\ngot  %q, %v\nwant %q", source, got, err, want)
		}
	}
	for _, source := range []string{"a\n{{ 1 < 3 < 2 }}", "\n{{ (1 == 1) == 2 != 3 }}"} {
		if _, err := Parse(source); err == nil || !strings.Contains(err.Error(), "line 2: a comparison of a comparison") {
			t.Errorf("%s: %v", source, err)
		}
	}
}

// What real templates do stays within the limits: a long conversation, macros in macros, methods on methods.
func TestTemplatesOfHonestSize(t *testing.T) {
	source := `{%- macro show(value, depth) -%}{%- if depth > 0 -%}[{{ show(value, depth - 1) }}]{%- else -%}{{ value }}{%- endif -%}{%- endmacro -%}
{%- set ns = namespace(count=0, last='') -%}
{%- for message in messages -%}
{%- set content = message.content.split('</think>')[-1].lstrip('\n').strip() | replace('a', 'bb') | trim -%}
{%- set ns.count = ns.count + 1 -%}
{{ '<|' ~ message['role'] + '|>' * 2 }}{{ show(content, 10) if loop.first else content }}{{ ' ' * 8 }}
{%- endfor -%}{{ ns.count * 3 }}{{ 2.5 * 2 }}{{ range(3) | join(',') }}`
	template, err := Parse(source)
	if err != nil {
		t.Fatal(err)
	}
	var msgs []Message
	var want strings.Builder
	for i := range 2000 {
		text := fmt.Sprint("c", i, strings.Repeat(" d", 500))
		msgs = append(msgs, Message{Role: "user", Text: "a</think>\n" + text + " "})
		if i == 0 {
			text = strings.Repeat("[", 10) + text + strings.Repeat("]", 10)
		}
		want.WriteString("<|user|>|>" + text + strings.Repeat(" ", 8))
	}
	want.WriteString("60005.00,1,2")
	begin := time.Now()
	got, err := template.Render(msgs, RenderOptions{})
	if err != nil {
		t.Fatal(strings.ReplaceAll(err.Error(), " d", ""))
	}
	if g, w := got, want.String(); err != nil || g != w {
		t.Fatalf("%v: got %.300q…%q\nwant %.300q…%q", err, g, g[max(0, len(g)-60):], w, w[len(w)-60:])
	}
	t.Logf("2000 messages of 1 kB: %v", time.Since(begin))
}

// FuzzTemplate looks for a template that panics, hangs or overflows.
func FuzzTemplate(f *testing.F) {
	for _, source := range []string{qwenVLSource, qwenTextSource, "{% macro f(x) %}{{ f(x ~ x) }}{% endmacro %}{{ f('a') }}",
		"{% set ns = namespace(x=[]) %}{% for i in range(9) %}{% set ns.x = [ns.x, i] %}{% endfor %}{{ ns.x|tojson|center(99) }}",
		"{{ messages[0].content.split(' ')|map('upper')|join('x' * 9) if messages is defined and not add_generation_prompt else " +
			"'%9d'|format(3) }}"} {
		f.Add(source)
	}
	f.Fuzz(func(t *testing.T, source string) { renderHostile(t, source) })
}
