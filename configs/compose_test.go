package configs

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// tree makes a library of files written as "path: content" blocks separated by lines of "--- path".
func tree(text string) fstest.MapFS {
	fs := fstest.MapFS{}
	for _, block := range strings.Split(text, "--- ")[1:] {
		name, body, _ := strings.Cut(block, "\n")
		fs[name+".yaml"] = &fstest.MapFile{Data: []byte(body)}
	}
	return fs
}

func request(files string, overrides ...string) Request {
	return Request{Library: tree(files), Overrides: overrides, Now: time.Date(2026, 1, 31, 12, 5, 9, 0, time.UTC),
		Getenv: func(k string) (string, bool) { return "from " + k, k == "SET" }}
}

// flow is the composed job in one line.
func flow(t *testing.T, req Request, resolve bool) string {
	t.Helper()
	c, err := Compose(req)
	if err != nil {
		return "error: " + err.Error()
	}
	n := c.job()
	if resolve {
		if n, err = c.Resolved(); err != nil {
			return "error: " + err.Error()
		}
	}
	return n.pyRepr()
}

const shop = `--- config
defaults:
  - db: mysql
  - _self_
port: 1
tags: [a]
nested: {x: {y: 1}}
none: null
todo: ???
--- db/mysql
kind: mysql
user: root
--- db/pg
kind: pg
`

func TestEdits(t *testing.T) {
	for _, tc := range []struct{ name, override, want string }{
		{"a group choice", "db=pg", "'kind': 'pg'"},
		{"a dict merges", "nested={x:{y:2}}", "{'x': {'y': 2}}"},
		{"a scalar replaces a dict", "nested=3", "'nested': 3"},
		{"plus makes parents through a scalar", "+port.a.b=1", "'port': {'a': {'b': 1}}"},
		{"plus fills null", "+none=2", "'none': 2"},
		{"plus fills ???", "+todo=2", "'todo': 2"},
		{"plus replaces lists", "+tags=[b]", "'tags': ['b']"},
		{"plus merges dicts", "+nested={z:1}", "{'x': {'y': 1}, 'z': 1}"},
		{"list items by index", "tags.0=z", "['z']"},
		{"extend_list appends", "tags=extend_list(b,[c])", "['a', 'b', ['c']]"},
		{"delete", "~nested.x.y", "'nested': {'x': {}}"},
		{"delete null", "~none", "'todo': '???'}"},
		{"delete null by value", "~none=null", "'todo': '???'}"},
		{"delete something by null", "~port=null", "error: ~port=null: Could not delete from config. The value of 'port' is 1 and not None."},
		{"delete a list item", "~tags.0", "'tags': []"},
		{"delete a group", "~db", "{'port': 1"},
		{"a slash in a key that is no group", "+a/b=1", "'a/b': 1"},

		{"an absent key names the nearest", "prot=1", "error: prot=1: Could not override 'prot': Key 'prot' is not in struct (did you mean " +
			"port?). To append to your config use +prot=1"},
		{"an absent key inside a dict value", "nested={other:1}",
			"error: nested={other:1}: Could not override 'nested': Key 'other' is not in struct 'nested'. To append to your config use " +
				"+nested={other:1}"},
		{"an absent parent", "nested.z.w=1", "error: nested.z.w=1: Could not override 'nested.z.w': Key 'z' is not in struct 'nested' (did " +
			"you mean nested.x?). To append to your config use +nested.z.w=1"},
		{"an absent key of hydra", "hydra.job.nmae=1", "error: hydra.job.nmae=1: Could not override 'hydra.job.nmae': Key 'nmae' not in " +
			"'JobConf' (did you mean hydra.job.name?). To append to your config use +hydra.job.nmae=1"},
		{"an absent key of hydra itself", "hydra.jop.x=1", "error: hydra.jop.x=1: Could not override 'hydra.jop.x': Key 'jop' not in " +
			"'HydraConf' (did you mean hydra.job?). To append to your config use +hydra.jop.x=1"},
		{"plus on a value", "+port=2", "error: +port=2: Could not append to config. An item is already at 'port'. Either remove the + " +
			"prefix: 'port=2', or add a second + to add or override 'port': '++port=2'"},
		{"list against dict", "tags={a:1}", "error: tags={a:1}: Error merging override: Cannot merge incompatible container types: tags is a " +
			"list, the override has a mapping"},
		{"an index behind the end", "tags.3=x", "error: tags.3=x: Error merging override: tags has no item 3: list index out of range, it " +
			"has 1 items counted from 0"},
		{"delete with another value", "~port=2", "error: ~port=2: Could not delete from config. The value of 'port' is 1 and not 2."},
		{"an absent option names the nearest", "db=mysq", "error: db=mysq: In 'config': Could not find 'db/mysq' (did you mean mysql?). " +
			"Available options in 'db': mysql, pg"},
		{"null as an option", "db=null", "error: db=null: config group override must be a string or a list of strings, got null (null) (to " +
			"unselect the group use ~db)"},
		{"a package on a value", "port@x=1", "error: port@x=1: Override port@x=1 looks like a config group override, but config group 'port' " +
			"does not exist"},
		{"all syntax errors at once", "a=[ b=c=d", "error: a=[ b=c=d: Error parsing override: column 6: unexpected \"=\": want \",\" or " +
			"\"]\" (quote the value if it is text)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := flow(t, request(shop, tc.override), false)
			if !strings.Contains(got, tc.want) || strings.HasPrefix(tc.want, "error") && got != tc.want {
				t.Errorf("%s\n got %s\nwant %s", tc.override, got, tc.want)
			}
		})
	}
}

func TestDefaultsLists(t *testing.T) {
	for _, tc := range []struct{ name, files, override, want string }{
		{"self first lets groups win", "--- config\ndefaults: [_self_, {g: a}]\ng: {x: 0}\n--- g/a\nx: 1\n", "", "{'g': {'x': 1}}"},
		{"self absent is last", "--- config\ndefaults: [{g: a}]\ng: {x: 0}\n--- g/a\nx: 1\n", "", "{'g': {'x': 0}}"},
		{"a sub-path gives its folder to the package", "--- config\ndefaults: [{g: s/a}]\n--- g/s/a\nx: 1\n", "", "{'g': {'s': {'x': 1}}}"},
		{"on the command line the package stays", "--- config\ndefaults: [{g: b}]\n--- g/b\n--- g/s/a\nx: 1\n", "g=s/a", "{'g': {'x': 1}}"},
		{"an absolute group keeps the parent's package", "--- config\ndefaults: [{g: a}]\n--- g/a\ndefaults: [/h: b]\n--- h/b\nx: 1\n", "",
			"{'g': {'h': {'x': 1}}}"},
		{"_global_ restarts", "--- config\ndefaults: [{g: a}]\n--- g/a\ndefaults: [/h@_global_.z: b]\n--- h/b\nx: 1\n", "",
			"{'z': {'x': 1}, 'g': {}}"},
		{"optional forgives", "--- config\ndefaults: [optional g: a]\nx: 1\n", "", "{'x': 1}"},
		{"an override in a file loses to the command line", "--- config\ndefaults: [{g: a}, {e: x}]\n--- g/a\nv: a\n--- g/b\nv: b\n--- " +
			"g/c\nv: c\n--- e/x\n# @package _global_\ndefaults: [override /g: b]\n", "g=c", "{'g': {'v': 'c'}}"},
		{"an override in a file wins over the list", "--- config\ndefaults: [{g: a}, {e: x}]\n--- g/a\nv: a\n--- g/b\nv: b\n--- e/x\n# " +
			"@package _global_\ndefaults: [override /g: b]\n", "", "{'g': {'v': 'b'}}"},
		{"an added group comes last", "--- config\ndefaults: [{g: a}]\ng: {x: 0}\n--- g/a\nx: 1\n--- h/b\n# @package g\nx: 2\n", "+h=b",
			"{'g': {'x': 2}}"},
		{"null over a dict", "--- config\ndefaults: [a, b]\n--- a\nk: {x: 1}\n--- b\nk: null\n", "", "{'k': None}"},
		{"??? never hides a value", "--- config\ndefaults: [a, b]\n--- a\nk: 1\n--- b\nk: ???\n", "", "{'k': 1}"},

		{"two keys", "--- config\ndefaults:\n  - {a: b, c: d}\n", "",
			"error: configs/conf/config.yaml:2:5: Too many keys in default item: 2, want one, group: option"},
		{"an unknown keyword", "--- config\ndefaults:\n  - optinal g: a\n", "",
			"error: configs/conf/config.yaml:2:5: Unsupported keyword 'optinal' in defaults list, in \"optinal g\" (did you mean optional?): " +
				"want optional or override"},
		{"dots", "--- config\ndefaults:\n  - g: ../a\n", "", "error: configs/conf/config.yaml:2:8: \"../a\": Parent traversal ('..') in " +
			"Defaults List paths is not supported"},
		{"a number as an option", "--- config\ndefaults:\n  - g: 5\n", "",
			"error: configs/conf/config.yaml:2:8: Unsupported item value in defaults: an integer as an option: want a string, a list of strings " +
				"or null"},
		{"a loop ends", "--- config\ndefaults: [a]\n--- a\ndefaults: [a]\n", "",
			"error: configs/conf/a.yaml:1:12: defaults lists nested deeper than 200: a includes a"},
		{"a loop through a chosen option ends", "--- config\ndefaults: [{net: r}, {a: \"${net}\"}]\n--- net/r\nk: 1\n--- a/r\ndefaults: " +
			"[{/a@x: \"${net}\"}]\n", "", "error: configs/conf/a/r.yaml:1:12: defaults lists nested deeper than 200: a/r includes a/r"},
		{"the primary config includes itself", "--- config\ndefaults: [config, a]\n--- a\nk: 1\n", "",
			"error: configs/conf/config.yaml:1:20: defaults lists nested deeper than 200: config includes config (with --config-path your file " +
				"hides the program's of that name; --config-dir adds a folder to it)"},
		{"lists and dicts do not merge", "--- config\ndefaults: [a, b]\n--- a\nk: {x: 1}\n--- b\nk: [1]\n", "",
			"error: configs/conf/b.yaml:1:4: k: Cannot merge incompatible container types: a list into a mapping set at configs/conf/a.yaml:1:4"},
		{"hydra.searchpath below the primary config", "--- config\ndefaults: [a]\n--- a\nhydra: {searchpath: [x]}\n", "",
			"error: configs/conf/a.yaml:1:21: In 'a': Overriding hydra.searchpath is only supported from the primary config"},
		{"an unknown key of hydra", "--- config\nhydra:\n  job: {nam: x}\n", "",
			"error: configs/conf/config.yaml:2:14: Key 'nam' not in 'JobConf': unknown key hydra.job.nam (did you mean hydra.job.name?)"},
		{"a wrong type in hydra", "--- config\nhydra:\n  job: {num: x}\n", "",
			"error: configs/conf/config.yaml:2:14: hydra.job.num: want an integer, got the text \"x\""},
		{"a broken file", "--- config\na: [1\n", "", "error: configs/conf/config.yaml:1:1: not YAML: did not find expected ',' or ']'"},
		{"a duplicate key", "--- config\na: 1\nb: {c: 1, c: 2}\n", "", "error: configs/conf/config.yaml:2:11: found duplicate key c"},
		{"a python tag", "--- config\na: !!python/none x\n", "", "error: configs/conf/config.yaml:1:4: unknown tag !!python/none on \"x\""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var args []string
			if tc.override != "" {
				args = []string{tc.override}
			}
			if got := flow(t, request(tc.files, args...), false); got != tc.want {
				t.Errorf("\n got %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestInterpolation(t *testing.T) {
	base := "--- config\na: 1\nb: {c: 2, d: '${.c}', e: '${..a}', l: [5, '${.0}']}\nname: c\nt: {q: true}\n"
	for _, tc := range []struct{ name, value, want string }{
		{"a type is kept", "${a}", "1"},
		{"text is joined", "x${a}y${t.q}", "'x1yTrue'"},
		{"siblings", "${b.d}", "2"},
		{"parents", "${b.e}", "1"},
		{"list items", "${b.l[1]}-${b.l.0}-${b.l[-1]}", "'5-5-5'"},
		{"a nested key", "${b.${name}}", "2"},
		{"a container", "${t}", "{'q': True}"},
		{"escaped", `\${a}`, "'${a}'"},
		{"an escaped backslash", `\\${a}`, `'\\1'`},
		{"other backslashes stay", `a\b ${a}`, `'a\\b 1'`},
		{"blanks inside", "${ a }", "1"},
		{"environment", "${oc.env:SET}", "'from SET'"},
		{"environment with a default", "${oc.env:UNSET,5}", "'5'"},
		{"a null default stays null", "${oc.env:UNSET,null}", "None"},
		{"decode", "${oc.decode:'[1, {a: b}]'}", "[1, {'a': 'b'}]"},
		{"decode of an interpolation", `${oc.decode:"\${a}"}`, "1"},
		{"select with a default", "${oc.select:no.such,[1]}", "[1]"},
		{"select without", "${oc.select:no.such}", "None"},
		{"keys", "${oc.dict.keys:b}", "['c', 'd', 'e', 'l']"},
		{"create", "${oc.create:{x:${a}}}", "{'x': 1}"},
		{"time", "${now:%Y-%m-%d %H:%M:%S %j}", "'2026-01-31 12:05:09 031'"},
		{"hydra", "${hydra:job.name}", "'run'"},
		{"quotes nest", `${oc.env:UNSET,"${oc.env:UNSET,"z"}"}`, "'z'"},

		{"a missing key", "${no.such}", "Interpolation key 'no.such' not found"},
		{"a cycle", "${v}", "Recursive interpolation detected: a cycle at v"},
		{"too many dots", "${....a}", "too many dots"},
		{"an unknown resolver", "${oc.evn:X}", "unsupported interpolation type oc.evn (did you mean oc.env?)"},
		{"an unset variable", "${oc.env:UNSET}", "environment variable 'UNSET' not found"},
		{"an open brace", "${a", `"${" is not closed`},
		{"nothing inside", "${}", `unexpected '}' in an interpolation: want a key`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req := request(base, "+v="+withQuotes(tc.value, '\''))
			c, err := Compose(req)
			got := ""
			if err == nil {
				var n *Node
				if n, err = c.Resolved(); err == nil {
					got = n.Get("v").pyRepr()
				}
			}
			if err != nil {
				got = err.Error()
			}
			if got != tc.want && (err == nil || !strings.Contains(got, tc.want)) {
				t.Errorf("%s\n got %s\nwant %s", tc.value, got, tc.want)
			}
		})
	}
}

func TestEditsFollowLinks(t *testing.T) {
	got := flow(t, request("--- config\nmap: {k: 1}\nref: ${map}\n", "ref.k=2"), false)
	if want := "{'map': {'k': 2}, 'ref': '${map}'}"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	got = flow(t, request("--- config\na: 1\n", "+b=json_str({x:[${a}]})", "+c=json_str(${a})"), true)
	if want := `{'a': 1, 'b': '{"x": ["1"]}', 'c': '"1"'}`; got != want {
		t.Errorf("json_str: got %s, want %s", got, want)
	}
}

// Growth in a few lines of input must end in an error, not in memory.
func TestBombs(t *testing.T) {
	aliases := "--- config\na0: &a0 [x, x, x, x, x, x, x, x, x]\n"
	links := "--- config\nb0: [1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
	text := "--- config\nc0: 0123456789\n"
	for i := 1; i < 12; i++ {
		n, p := itoa(i), itoa(i-1)
		aliases += "a" + n + ": &a" + n + " [" + strings.TrimSuffix(strings.Repeat("*a"+p+", ", 9), ", ") + "]\n"
		links += "b" + n + ": [" + strings.TrimSuffix(strings.Repeat("'${b"+p+"}', ", 9), ", ") + "]\n"
		text += "c" + n + ": " + strings.Repeat("${c"+p+"}", 9) + "\n"
	}
	lists := "--- config\ndefaults: [d1, d1]\n"
	for i := 1; i < 40; i++ {
		lists += "--- d" + itoa(i) + "\ndefaults: [d" + itoa(i+1) + ", d" + itoa(i+1) + "]\n"
	}
	lists += "--- d40\nx: 1\n"
	for _, tc := range []struct{ name, files, want string }{
		{"defaults lists", lists, "unfold to more than"},
		{"aliases", aliases, "expand to more than"},
		{"links", links, "expand to more than"},
		{"text", text, "text longer than"},
		{"an alias of itself", "--- config\na: &a [*a]\n", "refers to itself"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := flow(t, request(tc.files), true); !strings.Contains(got, tc.want) {
				t.Errorf("got %.200s, want %s", got, tc.want)
			}
		})
	}
}

// What a launcher sets for a job, and what a job must leave alone.
func TestJobSettings(t *testing.T) {
	files := shop + "--- node/fast\n# @package hydra.launcher\nqueue: fast\n--- other/ray\n# @package _global_\ndefaults: [override " +
		"/hydra/launcher: ray]\n--- hydra/launcher/ray\nx: 1\n"
	req := request(files, "+hydra.job.env_set={A:1,B:'${port}'}", "hydra.job.env_copy=[SET]", "hydra.job.chdir=yes", "port=1,2")
	req.Multirun = true
	c, err := NewComposer(req)
	if err != nil {
		t.Fatal(err)
	}
	master, err := c.Compose()
	if err != nil {
		t.Fatal(err)
	}
	job, err := c.Job(master, 1, []string{"port=2"})
	if err != nil {
		t.Fatal(err)
	}
	h, err := job.Hydra()
	if err != nil {
		t.Fatal(err)
	}
	if env, want := strings.Join(h.Env, " "), "A=1 B=2 SET=from SET"; env != want {
		t.Errorf("environment %s, want %s", env, want)
	}
	if !h.Chdir {
		t.Error("hydra.job.chdir is lost")
	}
	if idle := job.HydraIdle(); len(idle) > 0 {
		t.Errorf("nothing without an effect was set: %q", idle)
	}
	for override, want := range map[string]string{"hydra.output_subdir=null": "hydra.output_subdir=null: want the name of a folder",
		"hydra.output_subdir=../x":   "want the name of a folder in the run folder, got the text",
		"hydra.output_subdir=conf/x": "conf/x [] [] [] []",
		"hydra.verbose=true":         ".hydra [] [] []",
		"hydra/job_logging=disabled": ".hydra [] [] [] [hydra/job_logging=disabled has no effect",
		"hydra.verbose=[a,b]":        ".hydra [a b] [] []", "hydra.verbose=a": ".hydra [a] [] []",
		"hydra.verbose=3":                       "hydra.verbose=3: want true, false or a list of phases, got 3",
		"+hydra.callbacks.mine={_target_: m.C}": "a callback is a shell command here, not a class of Python: want hydra.callbacks.mine.on_job",
		"+hydra.callbacks.mine=date":            "want a mapping {on_job_end: COMMAND}, got the text",
		"+hydra.callbacks={a: {on_job_end: x, on_multirun_end: y}, b: {on_job_end: z}}": ".hydra [] [z x] [y]"} {
		c, err := Compose(request("--- config\na: 1\n", override))
		if err != nil {
			t.Fatal(override, err)
		}
		h, err := c.Hydra()
		got := fmt.Sprint(h.OutputSubdir, " ", h.Verbose, " ", h.OnJobEnd, " ", h.OnMultirun, " ", c.HydraIdle())
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %s…", override, got, want)
		}
	}
	for overrides, want := range map[string]string{
		"+node=fast": "job 0 [+node=fast] changes hydra.launcher: it must be configured before the sweep starts",
		"+other=ray": "job 0 [+other=ray] changes hydra/launcher from 'basic' to 'ray'",
	} {
		if _, err := c.Job(master, 0, []string{overrides}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", overrides, err, want)
		}
	}
}

func TestOverrideDirname(t *testing.T) {
	for _, tc := range []struct{ args, value, want string }{
		{"port=1 db=pg", "${hydra:job.override_dirname}", "db=pg,port=1"},
		{"port=1 db=pg hydra.job.config.override_dirname.exclude_keys=[port] hydra.job.config.override_dirname.kv_sep=-",
			"${hydra_override_dirname:}", "db-pg"},
		{"port=1 db=pg", "${hydra_override_dirname:{item_sep:_,kv_sep:'.'}}", "db.pg_port.1"},
		{"port=1 hydra.job.override_dirname=own", "${hydra:job.override_dirname}", "own"},
	} {
		files := strings.Replace(shop, "none: null", "none: \""+tc.value+"\"", 1)
		c, err := Compose(request(files, strings.Fields(tc.args)...))
		if err != nil {
			t.Fatal(err)
		}
		n, err := c.Resolved()
		if err != nil || n.Get("none").Text != tc.want {
			t.Errorf("%s: got %v, %v, want %s", tc.args, n.Get("none"), err, tc.want)
		}
	}
}

func TestOverrideDirnameResolver(t *testing.T) {
	c, err := Compose(request("--- config\na: 1\nb: 2\nv: '${hydra_override_dirname:}'\nw: \"${hydra_override_dirname:{kv_sep: '-', "+
		"item_sep: _, exclude_keys: [b]}}\"\nx: '${hydra:job.num}'\n", "b=3", "a=${b}", "+z=q"))
	if err != nil {
		t.Fatal(err)
	}
	n, err := c.Resolved()
	if err != nil {
		t.Fatal(err)
	}
	if got := n.Get("v").Text + " " + n.Get("w").Text + " " + n.Get("x").pyStr(); got != "+z=q,a=3,b=3 +z-q_a-3 None" {
		t.Errorf("got %s", got)
	}
}

func TestExplain(t *testing.T) {
	c, err := Compose(request("--- config\ndefaults: [{g: a}, _self_]\ng: {x: '${y}'}\ny: 3\n--- g/a\nx: 1\n", "y=4"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Explain("g.x")
	want := "g.x: ${y}\n  resolves to 4\n  set by configs/conf/config.yaml:2:8\n  over 1 set by configs/conf/g/a.yaml:1:4\n"
	if err != nil || got != want {
		t.Errorf("got\n%s%v\nwant\n%s", got, err, want)
	}
	if _, err := c.Explain("g.y"); err == nil || !strings.Contains(err.Error(), "did you mean g.x?") {
		t.Errorf("unknown key: %v", err)
	}
	if got := c.Tree().Find("y").Origin.String(); got != "y=4" {
		t.Errorf("origin %s", got)
	}
}

func TestSyntaxErrorsAreCollected(t *testing.T) {
	_, err := Compose(request(shop, "a=[", "port=1", "b=}"))
	var all Errors
	if !errors.As(err, &all) || len(all) != 2 {
		t.Fatalf("got %v, want two errors", err)
	}
}
