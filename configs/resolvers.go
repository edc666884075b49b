package configs

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"
)

func itoa(i int) string { return strconv.Itoa(i) }

// environment is what resolvers may see besides the tree.
type environment struct {
	now    time.Time
	getenv func(string) (string, bool)
	warn   func(string)
}

var resolverNames = [...]string{"hydra", "hydra_override_dirname", "now", "oc.create", "oc.decode", "oc.deprecated",
	"oc.dict.keys", "oc.dict.values", "oc.env", "oc.select", "python_version"}

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
	fail := func(format string, a ...any) (*place, error) {
		return nil, errorf("${%s:}: %s", name, fmt.Sprintf(format, a...))
	}
	here := func(n *Node) (*place, error) { return &place{l.up, r.computed(n, l), l.key}, nil }
	counts := func(low, high int) bool { return len(args) >= low && len(args) <= high }

	switch name {
	case "oc.env":
		if !counts(1, 2) || args[0].Kind != String {
			return fail("want NAME[,default]")
		}
		if v, ok := r.getenv(args[0].Text); ok {
			return here(plainString(v))
		}
		if len(args) == 1 {
			return fail("environment variable '%s' not found", args[0].Text)
		}
		if args[1].Kind == Null {
			return here(args[1])
		}
		return here(plainString(args[1].pyStr()))
	case "oc.decode":
		if !counts(1, 1) {
			return fail("want one argument")
		}
		if args[0].Kind == Null {
			return here(args[0])
		}
		if args[0].Kind != String {
			return fail("got %s: want text", args[0].Kind)
		}
		p := &valueParser{s: args[0].Text, nested: true}
		e, err := p.element()
		if err != nil {
			return fail("%s: %v", clip(p.s), err)
		}
		if t, n := p.peek(); t != tokEnd {
			return fail("%s: %v", clip(p.s), p.unexpected(t, n, "the end"))
		}
		if part := e.parts.only(); part != nil && part.node != nil && e.quote == 0 {
			return r.eval(e.parts, l) // a link stays one
		}
		n, err := r.evalElem(e, l)
		if err != nil {
			return nil, err
		}
		return here(n)
	case "oc.create":
		if !counts(1, 1) {
			return fail("want one argument")
		}
		n := args[0]
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
			return fail("object of unsupported type %s: want a mapping, a list or YAML text of one", n.Kind)
		}
		return &place{l.up, n, l.key}, nil
	case "oc.select", "oc.deprecated", "oc.dict.keys", "oc.dict.values":
		return r.callWithKey(name, args, l, fail)
	case "hydra":
		if !counts(1, 1) || args[0].Kind != String {
			return fail("want a path in the hydra config, as in ${hydra:job.name}")
		}
		whole := *r
		whole.root = &place{node: r.hydra}
		whole.active, whole.done, whole.expanded, whole.settled = map[string]bool{}, map[string]resolved{}, map[string]*Node{}, map[string]*Node{}
		if len(r.active) > maxDepth {
			return fail("nested too deeply")
		}
		for k := range r.active { // cycles through hydra: are cycles still
			whole.active["task "+k] = true
		}
		at, err := whole.find(0, append([]string{"hydra"}, splitPath(args[0].Text)...), nil)
		if err != nil {
			return nil, err
		}
		if at == nil || at.node.isMissing() {
			return here(newNull())
		}
		n, err := whole.expand(at)
		if err != nil {
			return nil, err
		}
		return here(n)
	case "hydra_override_dirname":
		if len(args) > 1 {
			return fail("want at most one mapping of options")
		}
		return r.overrideDirname(args, l, fail)
	case "now":
		if !counts(1, 1) {
			return fail("want a strftime format, as in ${now:%%Y-%%m-%%d}")
		}
		return here(plainString(strftime(args[0].pyStr(), r.now)))
	case "python_version":
		// There is no Python here; configs that ask get the version Hydra 1.4 is tested with.
		level := "minor"
		if len(args) > 0 {
			level = args[0].pyStr()
		}
		switch level {
		case "major":
			return here(plainString("3"))
		case "minor":
			return here(plainString("3.11"))
		case "micro":
			return here(plainString("3.11.2"))
		}
		return here(newNull())
	}
	return nil, errorf("unsupported interpolation type %s%s", name, didYouMean(name, resolverNames[:]))
}

// overrideDirname names a job by its task overrides: sorted, with their interpolations resolved, and
// joined. The options kv_sep, item_sep and exclude_keys default to hydra.job.config.override_dirname
// when no options are given at all; element_resolver is called with each item.
func (r *resolver) overrideDirname(args []*Node, l *place, fail func(string, ...any) (*place, error)) (*place, error) {
	options := r.hydra.Find("hydra.job.config.override_dirname")
	if len(args) == 1 {
		options = args[0]
	}
	if options == nil || options.Kind == Null {
		options = newMap()
	}
	if options.Kind != Map {
		return fail("options must be a mapping, got %s", options.Kind)
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
				return fail("%s must be text, got %s", k.Text, v.Kind)
			}
			*map[string]*string{"kv_sep": &kvSep, "item_sep": &itemSep, "element_resolver": &element}[k.Text] = v.Text
		case "exclude_keys":
			if v.Kind != List {
				return fail("exclude_keys must be a list, got %s", v.Kind)
			}
			for _, x := range v.Vals {
				excluded[x.pyStr()] = true
			}
		}
	}
	var items []string
	if task := r.hydra.Find("hydra.overrides.task"); task != nil {
		for _, v := range task.Vals {
			if o, err := ParseOverride(v.Text); err == nil && excluded[o.Key] {
				continue
			}
			items = append(items, v.Text)
		}
	}
	sort.Strings(items)
	for i, item := range items {
		n, err := newString(strings.ReplaceAll(item, "=", kvSep))
		if err != nil {
			return nil, err
		}
		if n.tmpl != nil {
			if n, err = r.joined(n.tmpl, l); err != nil {
				return nil, err
			}
		}
		if element != "" {
			at, err := r.call(element, &resolverCall{args: []*elem{scalarOf(plainString(n.Text))}}, l)
			if err != nil {
				return nil, err
			}
			n = plainString(at.node.pyStr())
		}
		items[i] = n.Text
	}
	return &place{l.up, r.computed(plainString(strings.Join(items, itemSep)), l), l.key}, nil
}

// callWithKey evaluates the resolvers whose first argument is a key of the tree, possibly relative.
func (r *resolver) callWithKey(name string, args []*Node, l *place, fail func(string, ...any) (*place, error)) (*place, error) {
	most := 2
	if strings.HasPrefix(name, "oc.dict.") {
		most = 1
	}
	if len(args) < 1 || len(args) > most || args[0].Kind != String {
		return fail("want a key of the config as text")
	}
	if name == "oc.deprecated" && len(args) == 2 && args[1].Kind != String {
		return fail("got %s as the message: want text", args[1].Kind)
	}
	key := args[0].Text
	up := span(key, ".")
	at, err := r.find(up, splitPath(key[up:]), l)
	if m, miss := err.(*missingError); miss && m.ahead {
		at, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	here := func(n *Node) (*place, error) { return &place{l.up, r.computed(n, l), l.key}, nil }
	switch name {
	case "oc.select":
		if at == nil || at.node.isMissing() {
			if len(args) == 2 {
				return here(args[1])
			}
			return here(newNull())
		}
		return at, nil
	case "oc.deprecated":
		if at == nil {
			return fail("key '%s' not found", key)
		}
		msg := fmt.Sprintf("'%s' is deprecated. Change your code and config to use '%s'", l.path(), key)
		if len(args) == 2 {
			msg = strings.NewReplacer("$OLD_KEY", l.path(), "$NEW_KEY", key).Replace(args[1].pyStr())
		}
		r.warn(msg)
		return at, nil
	}
	if at == nil || at.node.isMissing() {
		return fail("key '%s' not found", key)
	}
	if at.node.Kind != Map {
		return fail("key '%s' is %s: want a mapping", key, at.node.Kind)
	}
	out := newList()
	if name == "oc.dict.keys" {
		for _, k := range at.node.Keys {
			out.Vals = append(out.Vals, k.node())
		}
		return here(out)
	}
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
	return here(out)
}

// strftime formats t as C does, for the conversions people use in paths.
func strftime(format string, t time.Time) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		switch format[i] {
		case 'Y':
			b.WriteString(t.Format("2006"))
		case 'y':
			b.WriteString(t.Format("06"))
		case 'm':
			b.WriteString(t.Format("01"))
		case 'd':
			b.WriteString(t.Format("02"))
		case 'e':
			b.WriteString(t.Format("_2"))
		case 'H':
			b.WriteString(t.Format("15"))
		case 'I':
			b.WriteString(t.Format("03"))
		case 'M':
			b.WriteString(t.Format("04"))
		case 'S':
			b.WriteString(t.Format("05"))
		case 'f':
			fmt.Fprintf(&b, "%06d", t.Nanosecond()/1000)
		case 'p':
			b.WriteString(t.Format("PM"))
		case 'a':
			b.WriteString(t.Format("Mon"))
		case 'A':
			b.WriteString(t.Format("Monday"))
		case 'b', 'h':
			b.WriteString(t.Format("Jan"))
		case 'B':
			b.WriteString(t.Format("January"))
		case 'j':
			fmt.Fprintf(&b, "%03d", t.YearDay())
		case 'w':
			b.WriteString(itoa(int(t.Weekday())))
		case 'u':
			b.WriteString(itoa((int(t.Weekday())+6)%7 + 1))
		case 'U':
			fmt.Fprintf(&b, "%02d", (t.YearDay()+6-int(t.Weekday()))/7)
		case 'W':
			fmt.Fprintf(&b, "%02d", (t.YearDay()+6-(int(t.Weekday())+6)%7)/7)
		case 'V':
			_, week := t.ISOWeek()
			fmt.Fprintf(&b, "%02d", week)
		case 'G':
			year, _ := t.ISOWeek()
			b.WriteString(itoa(year))
		case 'F':
			b.WriteString(t.Format("2006-01-02"))
		case 'T', 'X':
			b.WriteString(t.Format("15:04:05"))
		case 'D', 'x':
			b.WriteString(t.Format("01/02/06"))
		case 'R':
			b.WriteString(t.Format("15:04"))
		case 'c':
			b.WriteString(t.Format("Mon Jan _2 15:04:05 2006"))
		case 's':
			b.WriteString(strconv.FormatInt(t.Unix(), 10))
		case 'n':
			b.WriteByte('\n')
		case 't':
			b.WriteByte('\t')
		case '%':
			b.WriteByte('%')
		default: // %z and %Z are empty for Python's naive times; others stay
			if format[i] != 'z' && format[i] != 'Z' {
				b.WriteString(format[i-1 : i+1])
			}
		}
	}
	return b.String()
}
