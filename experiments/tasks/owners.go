package tasks

import (
	"maps"
	"slices"
	"strings"

	"fulcrum/beamdata"
	"fulcrum/configs"
	"fulcrum/experiments/job"
	"fulcrum/internal/list"
	"fulcrum/internal/registry"
)

// owners says which sections and keys act, by what the tables of tasks, policies and data read (configs.Owners).
type owners struct {
	tasks    *registry.Table[job.Task]
	policies *registry.Table[job.Policy]
	data     []beamdata.Dataset
	taken    map[string]bool // sections that a table names: any other is a phase
}

// always are the sections that every task reads, and the user's own.
var always = []string{"report", "logging", "on_end", "vars"}

func newOwners(e job.Entries) *owners {
	o := &owners{tasks: e.Tasks, policies: e.Policies, data: append(beamdata.Datasets(), e.Data...), taken: map[string]bool{}}
	take := func(keys []string) {
		for _, key := range keys {
			if !strings.Contains(key, ".") {
				o.taken[key] = true
			}
		}
	}
	take(always)
	for _, name := range o.tasks.Names() {
		t, _ := o.tasks.Get(name)
		take(append(t.Sections, name))
		take(t.Reads)
	}
	for _, name := range o.policies.Names() {
		p, _ := o.policies.Get(name)
		take(p.Trains)
		o.taken[p.Section] = true
	}
	return o
}

// chosen is what decides which keys act.
type chosen struct {
	task, policy, data string
	schedule           []string
}

func choiceOf(value func(key string) any) (c chosen) {
	c.task, _ = value("task").(string)
	c.policy, _ = value("policy").(string)
	c.data, _ = value("data.name").(string)
	names, _ := value("schedule").([]any)
	for _, name := range names {
		text, _ := name.(string)
		c.schedule = append(c.schedule, text)
	}
	return c
}

// Acts implements configs.Owners. The stages of a task have the policy of the run, and phases of their own; what the user gives reaches
// those with another policy too.
func (o *owners) Acts(value func(key string) any, key string, given bool) bool {
	c := choiceOf(value)
	t, err := o.tasks.Get(c.task)
	if err != nil { // said elsewhere
		return true
	}
	section, rest, _ := strings.Cut(key, ".")
	if !given && t.Trains {
		p, _ := o.policies.Get(c.policy)
		name, _, _ := strings.Cut(rest, ".")
		for part, need := range p.Needs {
			if configs.Covers(part, key) && !configs.Covers(key, need) && value(need) == nil {
				return false
			}
		}
		if slices.Contains(p.Ignores, name) {
			return false
		}
	}
	if o.acts(c, key) {
		return true
	}
	policies := []string{c.policy}
	if given {
		policies = o.policies.Names()
	}
	for _, stage := range t.Stages {
		c.task, c.schedule = stage, []string{section}
		for _, c.policy = range policies {
			if o.acts(c, key) {
				return true
			}
		}
	}
	return false
}

// acts reports whether a key has an effect in a task, its stages apart.
func (o *owners) acts(c chosen, key string) bool {
	t, err := o.tasks.Get(c.task)
	if err != nil {
		return true
	}
	section, _, _ := strings.Cut(key, ".")
	if reads(always, key) || section == c.task || reads(t.Sections, key) || reads(t.Reads, key) {
		return section != "data" || !reads(t.Sections, "data") || o.ofData(c.data, key)
	}
	p, err := o.policies.Get(c.policy)
	if t.Policy && section == p.Section {
		return true
	}
	scheduled := len(c.schedule) == 0 || slices.Contains(c.schedule, section) // an empty schedule is a fault of its own
	return t.Trains && (err != nil || reads(p.Trains, key) || !o.taken[section] && scheduled)
}

func (o *owners) Checked(value func(key string) any, section string) bool {
	c := choiceOf(value)
	t, err := o.tasks.Get(c.task)
	if err != nil || slices.Contains(always, section) || section == c.task || slices.Contains(t.Sections, section) {
		return err == nil // an unknown task is one fault, said elsewhere
	}
	p, _ := o.policies.Get(c.policy)
	return t.Policy && section == p.Section || t.Trains && (!o.taken[section] || slices.Contains(p.Trains, section))
}

// reads reports whether one of some keys is a key, holds it or lies below it.
func reads(keys []string, key string) bool {
	return slices.ContainsFunc(keys, func(k string) bool { return configs.Covers(k, key) || configs.Covers(key, k) })
}

// ofData reports whether the kind of data of a name reads a key. What no kind claims, all read.
func (o *owners) ofData(name, key string) bool {
	key = strings.TrimPrefix(strings.TrimPrefix(key, "data"), ".")
	claimed := false
	for _, d := range o.data {
		if key == "" || reads(d.Reads, key) {
			if claimed = true; d.Name == name || key == "" {
				return true
			}
		}
	}
	return !claimed
}

// Choices implements configs.Owners: the choices of one kind that suffice, else those of two that do together.
func (o *owners) Choices(value func(key string) any, key string) []string {
	is := choiceOf(value)
	section, _, _ := strings.Cut(key, ".")
	type move struct {
		text string
		made func(c chosen) chosen
	}
	data := list.Map(o.data, func(d beamdata.Dataset) move {
		return move{"data=" + d.Name, func(c chosen) chosen { c.data = d.Name; return c }}
	})
	policies := list.Map(o.policies.Names(), func(name string) move {
		return move{"policy=" + name, func(c chosen) chosen { c.policy = name; return c }}
	})
	tasks := list.Map(o.tasks.Names(), func(name string) move {
		return move{"task=" + name, func(c chosen) chosen { c.task = name; return c }}
	})
	schedule := append(slices.Clone(is.schedule), section)
	phase := move{"schedule=[" + strings.Join(schedule, ",") + "]", func(c chosen) chosen { c.schedule = schedule; return c }}
	if o.taken[section] {
		phase.text, phase.made = "", func(c chosen) chosen { return c }
	}
	found := map[string]bool{}
	for _, moves := range [][]move{data, append(policies, tasks...), {phase}} {
		for _, m := range moves {
			if o.acts(m.made(is), key) {
				found[m.text] = true
			}
		}
		if len(found) > 0 {
			return slices.Sorted(maps.Keys(found))
		}
	}
	for _, first := range append(append(policies, phase), data...) {
		for _, m := range tasks {
			if o.acts(m.made(first.made(is)), key) {
				found[strings.TrimSpace(first.text+" "+m.text)] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}
