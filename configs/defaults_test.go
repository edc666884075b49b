package configs

import (
	"strings"
	"testing"
)

// A tree with every form of a defaults list. Each option says who it is, so that a composed config
// shows what was merged and where: w holds the last one merged into a package.
const forms = `--- empty
--- plain
w: plain
--- base
defaults: [{color: red}]
w: base
--- first
defaults: [_self_, {color: red}]
color: {own: 1}
--- last
defaults: [{color: red}, _self_]
color: {own: 1}
--- onlyself
defaults: [_self_]
w: onlyself
--- include
defaults: [plain]
--- includepkg
defaults: [plain@p.q, /plain@_here_, 'color/red@_global_']
--- nest
defaults: [{shape: round}]
--- nestconfig
defaults: [{shape: viaconfig}]
--- nestpkg
defaults: [{shape: roundpkg}]
--- atpkg
defaults: [color@p: red]
--- twopkgs
defaults: [color@p: red, color@q: red]
--- globalpkg
defaults: [color: red, color@_global_: blue]
--- here
defaults: [shape: here]
--- same
defaults: [{color: red}, {override color: blue}]
--- deeper
defaults: [{shape: round}, {override shape/edge: soft}]
--- tonull
defaults: [{shape: round}, {override shape/edge: null}]
--- wrongorder
defaults: [{override color: blue}, {color: red}]
--- wrongorderlist
defaults: [{override color: blue}, {color: [red, blue]}]
--- dangling
defaults: [{override color: blue}]
w: dangling
--- danglingnested
defaults: [{shape: flat}, {override shape/edge: soft}]
--- changing
defaults: [{color: red}, {color: blue}]
--- changingandabsent
defaults: [{shape: flat}, {shape: null}, {color: nocolor}]
--- onlyoverrides
defaults: [{shape/edge: over}, {shape/edge: over}]
--- twice
defaults: [{color: red}, {color: red}]
--- twicewithself
defaults: [{shape: leaf}, {shape: leaf}]
--- twoselves
defaults: [_self_, {color: red}, _self_]
--- selfpkg
defaults: [_self_@p]
--- nullitem
defaults: [color: null]
--- open
defaults:
- color: ???
--- openpkg
defaults:
- color@p: ???
--- openglobal
defaults:
- color@_global_: ???
--- openpath
defaults: ['???']
--- exp
defaults: [{color: red}, {exp: wantsblue}]
--- expfirst
defaults: [{exp: wantsblue}, {color: red}]
--- expandoverride
defaults: [{color: red}, {exp: wantsblue}, {override color: green}]
--- baseglobal
defaults: [color@_global_: red]
--- maybe
defaults: [optional color: nocolor, optional ghost: x]
w: maybe
--- many
defaults: [color: [red, blue]]
--- manyempty
defaults: [color: []]
w: manyempty
--- manypkg
defaults: [color@p: [red, blue]]
--- manyoptional
defaults: [optional color: [nocolor, red]]
--- manyoverride
defaults: [color: [red, blue], override color: [blue, red]]
--- manyinterp
defaults: [{shape: round}, color: ['${shape}']]
--- inter
defaults: [{color: red}, {mix: '${color}_x'}]
--- interforward
defaults: [{mix: '${color}_x'}, {color: red}]
--- interpkg
defaults: [color@p: red, mix: '${color@p}_x']
--- internested
defaults: [{shape: round}, {mix: '${shape/edge}_x'}]
--- interbad
defaults: [{color: red}, {mix: '${colour}_x'}]
--- interresolver
defaults: [{color: red}, {mix: '${oc.env:SET}_x'}]
--- interconfig
defaults: [{color: red}, 'mix/${color}_x']
--- interin
defaults: [{color: red}, {wrap: needscolor}]
--- interinbefore
defaults: [{wrap: needscolor}, {color: red}]
--- interchain
defaults: [{chain: '${color}'}, {mix: '${tail}_x'}, {color: red}]
--- intercycle
defaults: [{color: '${mix}'}, {mix: '${color}'}]
--- interover
defaults: [{color: red}, {mix: '${color}_over'}]
--- interlate
defaults: [{late: '${color}'}, globaltail, {color: red}]
--- interearly
defaults: [globaltail, {late: '${color}'}, {color: red}]
--- globaltail
# @package _global_
defaults: [override /tail@_global_: two]
--- legacy
defaults: [{color: red}, {mix: '${defaults.0.color}_x'}]
--- twoconfigs
defaults: [color/red, color/blue]
--- keywords
defaults: [{optional: one}, {override: one}]
--- keywordtwice
defaults: [{override: one}, {override override: two}]
--- slash
defaults: [{shape: edge/hard}]
--- slashover
defaults: [{color: red}, {shape: edge/hard}, {override shape: edge/soft}]
--- slashcompat
defaults: [{shape: flat}, {override shape: edge/soft}]
--- slashgroup
defaults: [{shape/edge: hard}]
--- parent
defaults: [{color: ../x}]
--- back
defaults: ['color\red']
--- head
defaults: [{head: toppackage}]
--- headover
defaults: [head@p: toppackage]
--- samename
defaults: [{samename: item}]
w: samename
--- renamed
defaults: [color@p:q: red]
--- hydranew
defaults: [{hydra/run: mine}]
--- hydraplain
defaults: [{hydra/help: mine}]
--- hydraover
defaults: [override hydra/help: mine]
w: hydraover
--- hydralate
defaults: [{override hydra/help: mine}, {color: red}]
--- color/red
w: red
--- color/blue
w: blue
--- color/green
w: green
--- shape/flat
w: flat
--- shape/round
defaults: [{edge: hard}]
w: round
--- shape/leaf
defaults: [_self_]
w: leaf
--- shape/roundpkg
defaults: [edge@p: hard]
--- shape/viaconfig
defaults: [edge/hard]
--- shape/here
defaults: [edge/hard@_here_, /color@_here_.c: red]
--- shape/needs
defaults:
- edge: ???
--- shape/badover
defaults: [override edge@p: soft]
--- shape/edge/hard
w: hard
--- shape/edge/soft
w: soft
--- shape/edge/over
defaults: [override hydra/help: mine]
w: over
--- exp/wantsblue
# @package _global_
defaults: [override /color: blue]
e: 1
--- exp/noheader
defaults: [override /color: blue]
--- exp/norelative
# @package _global_
defaults: [override color: blue]
--- exp/absolute
# @package _global_
defaults: [/shape/edge: hard]
--- exp/wantsglobal
# @package _global_
defaults: [override /color@_global_: blue]
--- exp/wantshelp
# @package _global_
defaults: [override /hydra/help: mine]
--- exp/primary
# @package _global_
defaults: [override /hydra/help: mine]
w: primary
--- mix/red_x
w: red_x
--- mix/hard_x
w: hard_x
--- mix/two_x
w: two_x
--- mix/red_over
defaults: [override /color: blue]
--- mix/from env_x
w: env
--- wrap/needscolor
defaults: [/mix: '${color}_x']
--- chain/red
defaults: [/tail@_global_.tail: two]
--- late/red
defaults: [/tail@_global_: one]
--- tail/one
w: one
--- tail/two
w: two
--- optional/one
w: one
--- override/one
w: one
--- override/two
w: two
--- head/toppackage
# @package top
w: head
--- samename/item
w: item
--- hydra/run/mine
dir: mine
--- hydra/help/mine
app_name: mine
`

func formsRequest(config string, args string) Request {
	req := request(forms, strings.Fields(args)...)
	req.ConfigName = config
	return req
}

func TestDefaultsListForms(t *testing.T) {
	for _, tc := range []struct{ config, args, want string }{
		{"empty", "", "{}"},
		{"include", "", "{'w': 'plain'}"},
		{"base", "", "{'color': {'w': 'red'}, 'w': 'base'}"},
		{"first", "", "{'color': {'own': 1, 'w': 'red'}}"},
		{"last", "", "{'color': {'w': 'red', 'own': 1}}"},
		{"onlyself", "", "{'w': 'onlyself'}"},
		{"nest", "", "{'shape': {'edge': {'w': 'hard'}, 'w': 'round'}}"},
		{"nestconfig", "", "{'shape': {'edge': {'w': 'hard'}}}"},
		{"includepkg", "", "{'p': {'q': {'w': 'plain'}}, 'w': 'red'}"},
		{"renamed", "", "{'p': {'w': 'red'}}"},

		// what the command line appends
		{"empty", "+color=red", "{'color': {'w': 'red'}}"},
		{"include", "+color=red", "{'w': 'plain', 'color': {'w': 'red'}}"},
		{"base", "+color=red", "error: color appears more than once"},
		{"base", "+color=blue", "error: Multiple values for color. To override a value use 'override color: blue' (did you mean " +
			"color=blue?)"},
		{"empty", "+color=[red]", "{'color': {'w': 'red'}}"},
		{"empty", "+color@p.q=[red,blue]", "{'p': {'q': {'w': 'blue'}}}"},
		{"hydraover", "+color=red", "{'w': 'hydraover', 'color': {'w': 'red'}}"},
		{"exp/primary", "+color=red", "{'w': 'primary', 'color': {'w': 'red'}}"},
		{"dangling", "+color=red", "error: In 'dangling': Could not override 'color'. Invalid Defaults List override 'color: blue': No " +
			"earlier Group Default for 'color'"},
		{"danglingnested", "+shape/edge=hard", "error: In 'danglingnested': Could not override 'shape/edge'."},
		{"empty", "+color=nocolor", "error: In 'empty': Could not find 'color/nocolor'. Available options in 'color': blue, green, red"},

		// overrides
		{"base", "color=blue", "{'color': {'w': 'blue'}, 'w': 'base'}"},
		{"maybe", "color=blue", "{'color': {'w': 'blue'}, 'w': 'maybe'}"},
		{"nest", "shape=flat", "{'shape': {'w': 'flat'}}"},
		{"nest", "shape/edge=soft", "{'shape': {'edge': {'w': 'soft'}, 'w': 'round'}}"},
		{"same", "", "{'color': {'w': 'blue'}}"},
		{"same", "color=green", "{'color': {'w': 'green'}}"},
		{"deeper", "", "{'shape': {'edge': {'w': 'soft'}, 'w': 'round'}}"},
		{"deeper", "shape/edge=hard", "{'shape': {'edge': {'w': 'hard'}, 'w': 'round'}}"},
		{"danglingnested", "shape=round", "{'shape': {'edge': {'w': 'soft'}, 'w': 'round'}}"},
		{"danglingnested", "shape=round shape/edge=hard", "{'shape': {'edge': {'w': 'hard'}, 'w': 'round'}}"},
		{"danglingnested", "", "error: In 'danglingnested': Could not override 'shape/edge'. Invalid Defaults List override 'shape/edge: soft'"},
		{"danglingnested", "shape/edge=hard", "error: Could not override 'shape/edge'. No match in the defaults list."},
		{"dangling", "", "error: In 'dangling': Could not override 'color'."},
		{"wrongorder", "", "error: in 'wrongorder': override 'color: blue' is defined before 'color: red': Overrides must be at the end of " +
			"the defaults list"},
		{"wrongorderlist", "", "error: in 'wrongorderlist': override 'color: blue' is defined before 'color: [red, blue]'"},
		{"tonull", "", "{'shape': {'w': 'round'}}"},
		{"tonull", "shape/edge=soft", "{'shape': {'edge': {'w': 'soft'}, 'w': 'round'}}"},
		{"changing", "", "error: Multiple values for color. To override a value use 'override color: blue'"},
		{"changing", "shape=round", "error: Multiple values for color"},
		{"changingandabsent", "", "error: Could not find 'color/nocolor'"},
		{"changingandabsent", "", "error: Multiple values for shape. To override a value use 'override shape: null'"},
		{"onlyoverrides", "", "error: shape/edge appears more than once"},
		{"twice", "", "error: color appears more than once"},
		{"twicewithself", "", "{'shape': {'w': 'leaf'}}"}, // as in Hydra: only files without a defaults list are compared
		{"empty", "color=red", "error: Could not override 'color'. No match in the defaults list. To append to your default list use +color=red"},
		{"empty", "shape/edge@p=hard", "error: Could not override 'shape/edge@p'. No match"},

		// packages
		{"atpkg", "", "{'p': {'w': 'red'}}"},
		{"atpkg", "color@p=blue", "{'p': {'w': 'blue'}}"},
		{"atpkg", "color@wrong=blue", "error: Could not override 'color@wrong'. Did you mean to override color@p? To append to your default " +
			"list use +color@wrong=blue"},
		{"base", "color@p=red", "error: Could not override 'color@p'. Did you mean to override color?"},
		{"nestpkg", "", "{'shape': {'p': {'w': 'hard'}}}"},
		{"nestpkg", "shape/edge@shape.p=soft", "{'shape': {'p': {'w': 'soft'}}}"},
		{"nestpkg", "shape/edge=soft", "error: Could not override 'shape/edge'. Did you mean to override shape/edge@shape.p?"},
		{"twopkgs", "color@q=blue", "{'p': {'w': 'red'}, 'q': {'w': 'blue'}}"},
		{"twopkgs", "color=blue", "error: Could not override 'color'. Did you mean to override one of color@p, color@q?"},
		{"globalpkg", "", "{'color': {'w': 'red'}, 'w': 'blue'}"},
		{"globalpkg", "color@_global_=green", "{'color': {'w': 'red'}, 'w': 'green'}"},
		{"here", "", "{'shape': {'w': 'hard', '_here_': {'c': {'w': 'red'}}}}"},
		{"head", "", "{'top': {'w': 'head'}}"},
		{"headover", "", "{'p': {'w': 'head'}}"},
		{"empty", "+head@p=toppackage", "{'p': {'w': 'head'}}"},
		{"samename", "", "{'samename': {'w': 'item'}, 'w': 'samename'}"},

		// experiments
		{"base", "+exp=wantsblue", "{'color': {'w': 'blue'}, 'w': 'base', 'e': 1}"},
		{"base", "+exp=wantsblue color=green", "{'color': {'w': 'green'}, 'w': 'base', 'e': 1}"},
		{"same", "+exp=wantsblue", "{'color': {'w': 'blue'}, 'e': 1}"},
		{"exp", "", "{'color': {'w': 'blue'}, 'e': 1}"},
		{"exp", "color=green", "{'color': {'w': 'green'}, 'e': 1}"},
		{"expfirst", "", "error: In 'exp/wantsblue': Could not override 'color'."},
		{"expandoverride", "", "{'color': {'w': 'green'}, 'e': 1}"},
		{"expandoverride", "color=red", "{'color': {'w': 'red'}, 'e': 1}"},
		{"base", "+exp=absolute", "{'color': {'w': 'red'}, 'w': 'base', 'shape': {'edge': {'w': 'hard'}}}"},
		{"base", "+exp=absolute shape/edge=soft", "{'color': {'w': 'red'}, 'w': 'base', 'shape': {'edge': {'w': 'soft'}}}"},
		{"base", "+exp=noheader", "error: In 'exp/noheader': Could not override 'color@exp.color'. Invalid Defaults List override '/color: " +
			"blue': No earlier Group Default for 'color@exp.color' exists to override. Did you mean to override color?"},
		{"base", "+exp=norelative", "error: In 'exp/norelative': Could not override 'exp/color@color'"},
		{"baseglobal", "+exp=wantsglobal", "{'w': 'blue'}"},

		// open and empty slots
		{"nullitem", "", "{}"},
		{"nullitem", "color=red", "{'color': {'w': 'red'}}"},
		{"open", "", "error: You must specify 'color', e.g, color=<OPTION>. Available options: blue, green, red"},
		{"openpkg", "", "error: You must specify 'color@p', e.g, color@p=<OPTION>"},
		{"openglobal", "", "error: You must specify 'color@_global_', e.g, color@_global_=<OPTION>"},
		{"open", "color=red", "{'color': {'w': 'red'}}"},
		{"openpkg", "color@p=red", "{'p': {'w': 'red'}}"},
		{"openpath", "", "error: \"???\" in a defaults list"},
		{"empty", "+shape=needs", "error: You must specify 'shape/edge', e.g, shape/edge=<OPTION>. Available options: hard, over, soft"},
		{"empty", "+shape=needs shape/edge=soft", "{'shape': {'edge': {'w': 'soft'}}}"},
		{"maybe", "", "{'w': 'maybe'}"},

		// lists of options
		{"many", "", "{'color': {'w': 'blue'}}"},
		{"many", "color=[blue,red]", "{'color': {'w': 'red'}}"},
		{"many", "color=[]", "{}"},
		{"many", "color=green", "{'color': {'w': 'green'}}"},
		{"many", "~color/blue", "{'color': {'w': 'red'}}"},
		{"many", "~color", "error: Could not delete 'color'. No match in the defaults list"},
		{"manyempty", "", "{'w': 'manyempty'}"},
		{"manypkg", "", "{'p': {'w': 'blue'}}"},
		{"manypkg", "color@p=[green,red]", "{'p': {'w': 'red'}}"},
		{"manyoptional", "", "{'color': {'w': 'red'}}"},
		{"manyoptional", "color=[red,nocolor2]", "{'color': {'w': 'red'}}"},
		{"manyoverride", "", "{'color': {'w': 'red'}}"},
		{"manyinterp", "", "error: Defaults List interpolation is not supported in options list items"},
		{"nest", "shape/edge=[hard,soft]", "{'shape': {'edge': {'w': 'soft'}, 'w': 'round'}}"},

		// interpolation
		{"inter", "", "{'color': {'w': 'red'}, 'mix': {'w': 'red_x'}}"},
		{"inter", "color=green", "error: In 'inter': Could not find 'mix/green_x'"},
		{"inter", "mix=two_x", "{'color': {'w': 'red'}, 'mix': {'w': 'two_x'}}"},
		{"interforward", "", "{'mix': {'w': 'red_x'}, 'color': {'w': 'red'}}"},
		{"interpkg", "", "{'p': {'w': 'red'}, 'mix': {'w': 'red_x'}}"},
		{"internested", "", "{'shape': {'edge': {'w': 'hard'}, 'w': 'round'}, 'mix': {'w': 'hard_x'}}"},
		{"interbad", "", "error: Error resolving interpolation '${colour}_x' in a defaults list (did you mean color?), possible " +
			"interpolation keys: color"},
		{"interresolver", "", "error: Error resolving interpolation '${oc.env:SET}_x'"},
		{"legacy", "", "error: Error resolving interpolation '${defaults.0.color}_x'"},
		{"interconfig", "", "{'color': {'w': 'red'}, 'mix': {'w': 'red_x'}}"},
		{"interin", "", "{'color': {'w': 'red'}, 'wrap': {'mix': {'w': 'red_x'}}}"},
		{"interinbefore", "", "{'wrap': {'mix': {'w': 'red_x'}}, 'color': {'w': 'red'}}"},
		{"empty", "+color=red +wrap=needscolor", "{'color': {'w': 'red'}, 'wrap': {'mix': {'w': 'red_x'}}}"},
		{"empty", "+wrap=needscolor +color=red", "{'wrap': {'mix': {'w': 'red_x'}}, 'color': {'w': 'red'}}"},
		{"interchain", "", "{'tail': {'w': 'two'}, 'chain': {}, 'mix': {'w': 'two_x'}, 'color': {'w': 'red'}}"},
		{"intercycle", "", "error: Error resolving interpolation '${mix}'"},
		{"interover", "", "error: in 'mix/red_over': Default List Overrides are not allowed in the subtree of an interpolated config group " +
			"(override color@mix.color: blue)"},
		{"interlate", "", "{'w': 'two', 'late': {}, 'color': {'w': 'red'}}"},
		{"interearly", "", "error: In 'globaltail': Could not override 'tail@_global_'. Invalid Defaults List override '/tail@_global_: " +
			"two': No earlier Group Default for 'tail@_global_' exists to override."},

		// deletions
		{"nest", "~shape", "{}"},
		{"nest", "~shape/edge", "{'shape': {'w': 'round'}}"},
		{"nest", "~shape=round", "{}"},
		{"nest", "~shape=flat", "error: Could not delete 'shape=flat'. No match in the defaults list"},
		{"twopkgs", "~color@p", "{'q': {'w': 'red'}}"},
		{"twopkgs", "~color", "error: Could not delete 'color'."},
		{"twoconfigs", "~color/blue", "{'color': {'w': 'red'}}"},
		{"twoconfigs", "~color/blue=x", "error: the deletion of a config from the defaults list takes no value"},
		{"include", "~plain", "{}"},
		{"empty", "~color@p=red", "error: Could not delete 'color@p=red'. No match in the defaults list"},

		// keywords, slashes, Hydra's own groups
		{"keywords", "", "{'optional': {'w': 'one'}, 'override': {'w': 'one'}}"},
		{"keywordtwice", "", "{'override': {'w': 'two'}}"},
		{"slash", "", "{'shape': {'edge': {'w': 'hard'}}}"},
		{"slash", "shape/edge=soft", "{'shape': {'edge': {'w': 'soft'}}}"},
		{"slash", "shape=flat", "error: Could not override 'shape'. No match in the defaults list. The item shape: edge/… stands for the " +
			"group shape/edge: did you mean to override shape/edge?"},
		{"slashover", "", "{'color': {'w': 'red'}, 'shape': {'edge': {'w': 'soft'}}}"},
		{"slashcompat", "", "{'shape': {'w': 'soft'}}"},
		{"nest", "shape=edge/hard", "{'shape': {'w': 'hard'}}"},
		{"nest", "shape=../plain", "error: \"../plain\": Parent traversal ('..') in Defaults List paths is not supported"},
		{"parent", "", "error: \"../x\": Parent traversal"},
		{"back", "", "error: \"color\\\\red\": want / between"},
		{"twoselves", "", "error: Duplicate _self_ defined in twoselves"},
		{"selfpkg", "", "error: _self_@PACKAGE is not supported"},
		{"hydranew", "", "{}"},
		{"hydraplain", "", "error: Multiple values for hydra/help. To override a value use 'override hydra/help: mine'"},
		{"hydralate", "", "error: in 'hydralate': override 'hydra/help: mine' is defined before 'color: red'"},
		{"nowhere", "", "error: Cannot find primary config 'nowhere'. Check that it's in your config search path"},
	} {
		t.Run(strings.TrimSpace(tc.config+" "+tc.args), func(t *testing.T) {
			got := flow(t, formsRequest(tc.config, tc.args), false)
			if want, fails := strings.CutPrefix(tc.want, "error: "); fails {
				if !strings.HasPrefix(got, "error: ") || !strings.Contains(got, strings.ReplaceAll(want, `\\`, `\`)) {
					t.Errorf("\n got %s\nwant %s", got, tc.want)
				}
			} else if got != tc.want {
				t.Errorf("\n got %s\nwant %s", got, tc.want)
			}
		})
	}
}
