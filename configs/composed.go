package configs

import (
	"slices"
	"strings"

	"fulcrum/internal/list"
)

// Composed is a finished config.
type Composed struct {
	composer  *Composer
	tree      *Node // unresolved, with the hydra node
	base      *base
	overrides []*Override
	master    bool  // of a sweep: without what its jobs set, so sections are not asked to Validate
	resolved  *Node // the job config, resolved; made on demand

	whole          *Node    // the tree before what has no effect was dropped
	dropped, links []string // keys without effect, and what of them something that acts is linked to
	waiting        []string // keys that the user has set where another switches them off
}

// With composes the same files with other overrides of the job. Those of hydra stay.
func (c *Composed) With(overrides []string) (*Composed, error) {
	all := slices.DeleteFunc(slices.Clone(c.overrides), func(o *Override) bool { return !o.isHydra() })
	for _, text := range overrides {
		o, err := ParseOverride(text)
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return c.composer.compose(all, false, jobInfo{})
}

// check types the hydra node, and the job config when there is a schema.
func (c *Composed) check() error {
	var faults Errors
	for _, o := range c.overrides { // otherwise the base has been checked
		if o.isHydra() && !o.isSweep() {
			tree, err := c.composer.fitHydra(c.tree)
			if faults = flatten(err); len(faults) == 0 {
				c.tree = tree
			}
			break
		}
	}
	if s := c.base.schema; s != nil {
		err := c.checkJob(s)
		more := flatten(err)
		if err != nil && len(more) == 0 {
			return err
		}
		faults = append(faults, more...)
	}
	return faults.err()
}

// flatten lists the faults of an error; none when it is another error.
func flatten(err error) Errors {
	switch e := err.(type) {
	case *Error:
		return Errors{e}
	case Errors:
		return e
	}
	return nil
}

func (c *Composed) checkJob(s *Schema) error {
	job := c.job()
	m := c.base.memo
	raw := &checker{schema: s, root: job, memo: m}
	fitted := raw.fit(s.root, job, "")
	if fitted != job {
		c.tree = fitted.set(strKey("hydra"), c.tree.Get("hydra"))
	}
	c.whole = c.tree
	if c.master { // what an interpolation comes to may depend on the job: each is checked whole
		return raw.faults.err()
	}
	c.dropIdle(s)
	r := c.resolver(c.job())
	resolved, err := m.expand(r, r.root)
	if err != nil {
		if e, ok := err.(*Error); ok {
			return append(raw.faults, e).err()
		}
		return err
	}
	c.resolved, err = s.check(resolved, m, c.dropped)
	faults := flatten(err)
	if err != nil && len(faults) == 0 {
		return err
	}
	for _, f := range raw.faults { // also of what was dropped
		if !slices.ContainsFunc(faults, func(g *Error) bool { return *g == *f }) {
			faults = append(faults, f)
		}
	}
	return faults.err()
}

// fitHydra checks the hydra node of a tree and gives its values their types.
func (c *Composer) fitHydra(tree *Node) (*Node, error) {
	h := tree.Get("hydra")
	if h == nil {
		return tree, nil
	}
	ck := &checker{schema: c.hydraCheck, lax: true}
	if fitted := ck.fit(c.hydraCheck.root, h, "hydra"); fitted != h {
		tree = tree.set(strKey("hydra"), fitted)
	}
	return tree, ck.faults.err()
}

func (c *Composed) job() *Node { return c.tree.without("hydra") }

// resolver evaluates interpolations in root; ${hydra:…} sees the whole tree.
func (c *Composed) resolver(root *Node) *resolver {
	r := newResolver(root, c.composer.env)
	r.hydra = c.tree
	return r
}

// Resolved returns the job config with every interpolation evaluated.
func (c *Composed) Resolved() (*Node, error) {
	if c.resolved == nil {
		job := c.job()
		n, err := c.resolver(job).expand(&place{node: job})
		if err != nil {
			return nil, err
		}
		c.resolved = n
	}
	return c.resolved, nil
}

// Tree returns the unresolved config, with the hydra node.
func (c *Composed) Tree() *Node { return c.tree }

// Value returns the resolved value of a dotted key of the job config; nil for null and for no such key.
func (c *Composed) Value(key string) any {
	n, err := c.Resolved()
	if err != nil {
		return nil
	}
	if n = n.Find(key); n == nil {
		return nil
	}
	return n.value()
}

// Complete reports whether every key of the job config has a value: none is still ???.
func (c *Composed) Complete() bool {
	n, err := c.Resolved()
	return err == nil && !n.hasMissing()
}

// Choice is the option chosen for one override key, "" when none is.
func (c *Composed) Choice(key string) string {
	for _, e := range c.base.choices {
		if e.key == key && e.name != "null" {
			return e.name
		}
	}
	return ""
}

// TaskOverrides and HydraOverrides are the overrides as typed, or as re-printed for a sweep's job.
func (c *Composed) TaskOverrides() []string { return c.overrideTexts(false) }

// HydraOverrides are the overrides of the hydra node.
func (c *Composed) HydraOverrides() []string { return c.overrideTexts(true) }

func (c *Composed) overrideTexts(hydra bool) []string {
	mine := list.Filter(c.overrides, func(o *Override) bool { return o.isHydra() == hydra })
	return list.Map(mine, func(o *Override) string { return o.Text })
}

// section returns the part of the tree that --cfg prints.
func (c *Composed) section(which string) (*Node, error) {
	switch which {
	case "job":
		return c.job(), nil
	case "all":
		return c.tree, nil
	case "hydra":
		h := c.tree.Get("hydra")
		if h == nil {
			h = newMap()
		}
		return newMap().set(strKey("hydra"), h.without("help").without("hydra_help")), nil
	}
	return nil, errorf("--cfg %s: want job, hydra, all or sweep", which)
}

// YAML prints the config as Hydra's --cfg does. which is job, hydra or all; pkg selects a part.
func (c *Composed) YAML(which string, resolve bool, pkg string) (string, error) {
	root, err := c.section(which)
	if err == nil && resolve && which == "job" && c.base.schema != nil { // values have the types of their keys
		root, err = c.Resolved()
	}
	if err != nil {
		return "", err
	}
	r := c.resolver(root)
	head := ""
	at := r.root
	if pkg != "" && pkg != "_global_" {
		at, err = r.find(0, splitPath(pkg), r.root)
		if _, miss := err.(*missingError); miss {
			at, err = nil, nil
		}
		if err != nil {
			return "", err
		}
		if at == nil || at.node.Kind == Null || at.node.isMissing() {
			return "", errorf("package '%s' not found in config", pkg)
		}
		if !at.node.container() {
			return at.node.pyStr() + "\n", nil
		}
		head = "# @package " + pkg + "\n"
	}
	n := at.node
	if resolve {
		if n, err = r.expand(at); err != nil {
			return "", err
		}
	}
	return head + n.YAML(), nil
}

// hydraValue resolves a value of the hydra node; nil when absent, null or ???.
func (c *Composed) hydraValue(path string) (*Node, error) {
	r := c.resolver(c.tree)
	at, err := r.find(0, append([]string{"hydra"}, strings.Split(path, ".")...), r.root)
	if _, miss := err.(*missingError); miss {
		return nil, nil
	}
	if err != nil || at == nil || at.node.Kind == Null || at.node.isMissing() {
		return nil, err
	}
	return r.expand(at)
}
