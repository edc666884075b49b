package configs

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ncruces/go-strftime"

	"fulcrum/internal/list"
)

func itoa(i int) string { return strconv.Itoa(i) }

// environment is what resolvers may see besides the tree.
type environment struct {
	now    time.Time
	getenv func(string) (string, bool)
	warn   func(string)
}

// builtin is a call ${name:args} at a place of the tree.
type builtin struct {
	*resolver
	name string
	args []*Node
	at   *place
}

func (b builtin) fail(format string, args ...any) (*place, error) {
	return nil, errorf("${%s:}: %s", b.name, fmt.Sprintf(format, args...))
}

// gives returns a computed value in the place of the call.
func (b builtin) gives(n *Node) (*place, error) {
	return &place{b.at.up, b.computed(n, b.at), b.at.key}, nil
}

// call evaluates ${name:args} met at l.
func (r *resolver) call(name string, c *resolverCall, l *place) (*place, error) {
	args := make([]*Node, len(c.args))
	for i, a := range c.args {
		n, err := r.evalElem(a, l)
		if err != nil {
			return nil, err
		}
		args[i] = n
	}
	table := map[string]func(builtin) (*place, error){ // OmegaConf's and Hydra's
		"oc.env": builtin.env, "oc.decode": builtin.decode, "oc.create": builtin.create,
		"oc.select": builtin.withKey, "oc.deprecated": builtin.withKey, "oc.dict.keys": builtin.withKey, "oc.dict.values": builtin.withKey,
		"hydra": builtin.hydraKey, "hydra_override_dirname": builtin.overrideDirname,
		"now": builtin.formatNow, "python_version": builtin.pythonVersion,
	}
	if f := table[name]; f != nil {
		return f(builtin{r, name, args, l})
	}
	return nil, errorf("unsupported interpolation type %s%s", name, didYouMean(name, slices.Collect(maps.Keys(table))))
}

func (b builtin) env() (*place, error) {
	if len(b.args) < 1 || len(b.args) > 2 || b.args[0].Kind != String {
		return b.fail("want NAME[,default]")
	}
	if v, ok := b.getenv(b.args[0].Text); ok {
		return b.gives(plainString(v))
	}
	if len(b.args) == 1 {
		return b.fail("environment variable '%s' not found", b.args[0].Text)
	}
	if b.args[1].Kind == Null {
		return b.gives(b.args[1])
	}
	return b.gives(plainString(b.args[1].pyStr()))
}

func (b builtin) decode() (*place, error) {
	if len(b.args) != 1 {
		return b.fail("want one argument")
	}
	if b.args[0].Kind == Null {
		return b.gives(b.args[0])
	}
	if b.args[0].Kind != String {
		return b.fail("got %s: want text", b.args[0].Kind)
	}
	p := &valueParser{s: b.args[0].Text, nested: true}
	e, err := p.element()
	if err != nil {
		return b.fail("%s: %v", clip(p.s), err)
	}
	if t, n := p.peek(); t != tokEnd {
		return b.fail("%s: %v", clip(p.s), p.unexpected(t, n, "the end"))
	}
	if part := e.parts.single(); part != nil && part.node != nil && e.quote == 0 {
		return b.eval(e.parts, b.at) // a link stays one
	}
	n, err := b.evalElem(e, b.at)
	if err != nil {
		return nil, err
	}
	return b.gives(n)
}

func (b builtin) create() (*place, error) {
	if len(b.args) != 1 {
		return b.fail("want one argument")
	}
	n := b.args[0]
	if n.Kind == String {
		var err error
		if n, err = ParseYAML("oc.create", []byte(n.Text)); err != nil {
			return nil, err
		}
		switch n.Kind {
		case Null:
			n = newMap()
		case String:
			n = newMap().set(strKey(n.Text), newNull())
		}
	}
	if !n.container() && n.Kind != Null {
		return b.fail("object of unsupported type %s: want a mapping, a list or YAML text of one", n.Kind)
	}
	return &place{b.at.up, n, b.at.key}, nil
}

// hydraKey evaluates ${hydra:path} in the whole tree, of which the job's is a part.
func (b builtin) hydraKey() (*place, error) {
	if len(b.args) != 1 || b.args[0].Kind != String {
		return b.fail("want a path in the hydra config, as in ${hydra:job.name}")
	}
	path := b.args[0].Text
	whole := *b.resolver
	whole.root = &place{node: b.hydra}
	whole.active, whole.done, whole.expanded, whole.settled = map[string]bool{}, map[string]resolved{}, map[string]*Node{}, map[string]*Node{}
	if len(b.active) > maxDepth {
		return b.fail("nested too deeply")
	}
	for k := range b.active { // cycles through hydra: are found so
		whole.active["task "+k] = true
	}
	at, err := whole.find(0, append([]string{"hydra"}, splitPath(path)...), nil)
	if err != nil {
		return nil, err
	}
	if at == nil || at.node.isMissing() {
		return b.gives(newNull())
	}
	n, err := whole.expand(at)
	if err != nil {
		return nil, err
	}
	return b.gives(n)
}

func (b builtin) formatNow() (*place, error) {
	if len(b.args) != 1 {
		return b.fail("want a strftime format, as in ${now:%%Y-%%m-%%d}")
	}
	naive := strings.NewReplacer("%%", "%%", "%z", "", "%Z", "").Replace(b.args[0].pyStr()) // as Python's times without a zone
	return b.gives(plainString(strftime.Format(naive, b.now)))
}

// pythonVersion gives configs that ask the version that Hydra 1.4 is tested with: there is no Python here.
func (b builtin) pythonVersion() (*place, error) {
	level := "minor"
	if len(b.args) > 0 {
		level = b.args[0].pyStr()
	}
	version, ok := map[string]string{"major": "3", "minor": "3.11", "micro": "3.11.2"}[level]
	if !ok {
		return b.gives(newNull())
	}
	return b.gives(plainString(version))
}

// overrideDirname names a job by its task overrides: sorted, with their interpolations resolved, and
// joined. The options kv_sep, item_sep and exclude_keys default to hydra.job.config.override_dirname
// when no options are given at all; element_resolver is called with each item.
func (b builtin) overrideDirname() (*place, error) {
	if len(b.args) > 1 {
		return b.fail("want at most one mapping of options")
	}
	options := b.hydra.Find("hydra.job.config.override_dirname")
	if len(b.args) == 1 {
		options = b.args[0]
	}
	if options == nil || options.Kind == Null {
		options = newMap()
	}
	if options.Kind != Map {
		return b.fail("options must be a mapping, got %s", options.Kind)
	}
	kvSep, itemSep, element := "=", ",", ""
	excluded := map[string]bool{}
	for i, k := range options.Keys {
		v := options.Vals[i]
		switch k.Text {
		case "kv_sep", "item_sep", "element_resolver":
			if k.Text == "element_resolver" && v.Kind == Null {
				continue
			}
			if v.Kind != String {
				return b.fail("%s must be text, got %s", k.Text, v.Kind)
			}
			*map[string]*string{"kv_sep": &kvSep, "item_sep": &itemSep, "element_resolver": &element}[k.Text] = v.Text
		case "exclude_keys":
			if v.Kind != List {
				return b.fail("exclude_keys must be a list, got %s", v.Kind)
			}
			for _, x := range v.Vals {
				excluded[x.pyStr()] = true
			}
		}
	}
	var items []string
	if task := b.hydra.Find("hydra.overrides.task"); task != nil {
		for _, v := range task.Vals {
			if o, err := ParseOverride(v.Text); err == nil && excluded[o.Key] {
				continue
			}
			items = append(items, v.Text)
		}
	}
	slices.Sort(items)
	for i, item := range items {
		n, err := newString(strings.ReplaceAll(item, "=", kvSep))
		if err != nil {
			return nil, err
		}
		if n.tmpl != nil {
			if n, err = b.joined(n.tmpl, b.at); err != nil {
				return nil, err
			}
		}
		if element != "" {
			at, err := b.call(element, &resolverCall{args: []*elem{scalarOf(plainString(n.Text))}}, b.at)
			if err != nil {
				return nil, err
			}
			n = plainString(at.node.pyStr())
		}
		items[i] = n.Text
	}
	return b.gives(plainString(strings.Join(items, itemSep)))
}

// withKey evaluates the resolvers whose first argument is a key of the tree, possibly relative.
func (b builtin) withKey() (*place, error) {
	name, args := b.name, b.args
	most := 2
	if strings.HasPrefix(name, "oc.dict.") {
		most = 1
	}
	if len(args) < 1 || len(args) > most || args[0].Kind != String {
		return b.fail("want a key of the config as text")
	}
	if name == "oc.deprecated" && len(args) == 2 && args[1].Kind != String {
		return b.fail("got %s as the message: want text", args[1].Kind)
	}
	key := args[0].Text
	up := span(key, ".")
	at, err := b.find(up, splitPath(key[up:]), b.at)
	if m, miss := err.(*missingError); miss && m.ahead {
		at, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	switch name {
	case "oc.select":
		if at == nil || at.node.isMissing() {
			if len(args) == 2 {
				return b.gives(args[1])
			}
			return b.gives(newNull())
		}
		return at, nil
	case "oc.deprecated":
		if at == nil {
			return b.fail("key '%s' not found", key)
		}
		msg := fmt.Sprintf("'%s' is deprecated. Change your code and config to use '%s'", b.at.path(), key)
		if len(args) == 2 {
			msg = strings.NewReplacer("$OLD_KEY", b.at.path(), "$NEW_KEY", key).Replace(args[1].pyStr())
		}
		b.warn(msg)
		return at, nil
	}
	if at == nil || at.node.isMissing() {
		return b.fail("key '%s' not found", key)
	}
	if at.node.Kind != Map {
		return b.fail("key '%s' is %s: want a mapping", key, at.node.Kind)
	}
	if name == "oc.dict.keys" {
		return b.gives(newList(list.Map(at.node.Keys, Key.node)...))
	}
	out := newList()
	link := key // the values stay linked
	if up > 0 {
		link = "." + key // from inside the list that is made here
	}
	for _, k := range at.node.Keys {
		v, err := newString("${" + link + "." + k.Text + "}")
		if err != nil {
			return nil, err
		}
		out.Vals = append(out.Vals, v)
	}
	return b.gives(out)
}
