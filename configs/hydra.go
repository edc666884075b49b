package configs

import "strings"

// hydraVersion is the release whose behaviour this package follows.
const hydraVersion = "1.4.0"

// HydraConf is the type of the hydra node. It only checks: the defaults are in conf/hydra.
type HydraConf struct {
	Run          RunDir         `koanf:"run"`
	Sweep        SweepDir       `koanf:"sweep"`
	Launcher     any            `koanf:"launcher"`
	Sweeper      any            `koanf:"sweeper"`
	Help         HelpConf       `koanf:"help"`
	HydraHelp    HydraHelpConf  `koanf:"hydra_help"`
	HydraLogging any            `koanf:"hydra_logging"`
	JobLogging   any            `koanf:"job_logging"`
	Env          map[string]any `koanf:"env"`
	Mode         *string        `koanf:"mode" enum:"RUN,MULTIRUN"`
	SearchPath   []string       `koanf:"searchpath"`
	Callbacks    map[string]any `koanf:"callbacks"`
	OutputSubdir *string        `koanf:"output_subdir"`
	Overrides    OverridesConf  `koanf:"overrides"`
	Job          JobConf        `koanf:"job"`
	Runtime      RuntimeConf    `koanf:"runtime"`
	Verbose      any            `koanf:"verbose"`
}

// RunDir is hydra.run.
type RunDir struct {
	Dir string `koanf:"dir" also:"output_dir,out_dir,outdir,save_dir,run_dir,logdir"`
}

// SweepDir is hydra.sweep.
type SweepDir struct {
	Dir    string `koanf:"dir"`
	Subdir string `koanf:"subdir"`
}

// HelpConf is hydra.help: the parts of --help.
type HelpConf struct {
	AppName  string `koanf:"app_name"`
	Header   string `koanf:"header"`
	Footer   string `koanf:"footer"`
	Template string `koanf:"template"`
}

// HydraHelpConf is hydra.hydra_help: the text of --hydra-help.
type HydraHelpConf struct {
	HydraHelp string `koanf:"hydra_help"`
	Template  string `koanf:"template"`
}

// OverridesConf is hydra.overrides: the overrides as typed.
type OverridesConf struct {
	Hydra []string `koanf:"hydra"`
	Task  []string `koanf:"task"`
}

// JobConf is hydra.job.
type JobConf struct {
	Name            string            `koanf:"name"`
	Chdir           *bool             `koanf:"chdir"`
	OverrideDirname string            `koanf:"override_dirname"`
	ID              string            `koanf:"id"`
	Num             int               `koanf:"num"`
	ConfigName      *string           `koanf:"config_name"`
	EnvSet          map[string]string `koanf:"env_set"`
	EnvCopy         []string          `koanf:"env_copy"`
	Config          JobConfig         `koanf:"config"`
}

// JobConfig is hydra.job.config.
type JobConfig struct {
	OverrideDirname OverrideDirname `koanf:"override_dirname"`
}

// OverrideDirname says how hydra.job.override_dirname is built.
type OverrideDirname struct {
	KVSep       string   `koanf:"kv_sep"`
	ItemSep     string   `koanf:"item_sep"`
	ExcludeKeys []string `koanf:"exclude_keys"`
}

// ConfigSourceInfo is an entry of hydra.runtime.config_sources.
type ConfigSourceInfo struct {
	Path     string `koanf:"path"`
	Schema   string `koanf:"schema"`
	Provider string `koanf:"provider"`
}

// RuntimeConf is hydra.runtime.
type RuntimeConf struct {
	Version       string             `koanf:"version"`
	VersionBase   string             `koanf:"version_base"`
	Cwd           string             `koanf:"cwd"`
	ConfigSources []ConfigSourceInfo `koanf:"config_sources"`
	OutputDir     string             `koanf:"output_dir"`
	Choices       map[string]any     `koanf:"choices"`
}

// jobInfo is what a sweep or the caller knows about a job.
type jobInfo struct {
	num    int
	inside bool // part of a sweep: num is set
}

// bookkeeping writes what Hydra records about a composition into the hydra node.
func (c *Composer) bookkeeping(root *Node, overrides []*Override, b *base, job jobInfo) (*Node, error) {
	h := root.Get("hydra")
	if h == nil || h.Kind != Map {
		return root, nil
	}
	put := func(path string, v *Node) {
		old := h.Find(path)
		if old != nil && !old.isMissing() && !old.container() {
			v = v.over(old)
		}
		if v.Origin.Source == "" {
			v.Origin = Origin{Source: "hydra"}
		}
		h = h.setPath(strings.Split(path, "."), v)
	}
	var task, hydra []*Node
	for _, o := range overrides {
		n := stringOf(o.Text)
		n.Origin = Origin{Source: o.Text}
		if o.isHydra() {
			hydra = append(hydra, n)
		} else {
			task = append(task, n)
		}
	}
	appendTo := func(path string, items []*Node) {
		old := h.Find(path)
		n := newList(items...)
		if old != nil && old.Kind == List {
			n = newList(append(old.Vals[:len(old.Vals):len(old.Vals)], items...)...)
		}
		put(path, n)
	}
	appendTo("overrides.hydra", hydra)
	appendTo("overrides.task", task)

	h = h.set(strKey("runtime"), c.runtime(h.Get("runtime"), b))
	if copied := h.Find("job.env_copy"); copied != nil {
		for _, k := range copied.Vals {
			v, ok := c.env.getenv(k.Text)
			if !ok {
				return nil, errorAt(k.Origin, "hydra.job.env_copy: environment variable '%s' not found", k.Text)
			}
			n := plainString(v)
			n.Origin = k.Origin
			put("job.env_set."+k.Text, n)
		}
	}
	if n := h.Find("job.name"); n == nil || n.isMissing() {
		put("job.name", plainString(c.req.AppName))
	}
	put("job.config_name", plainString(c.req.ConfigName))
	if job.inside {
		put("job.num", newInt(int64(job.num)))
		put("job.id", plainString(itoa(job.num)))
	}
	return root.set(strKey("hydra"), h), nil
}

// runtime fills in hydra.runtime, which the jobs of a base share unless they change it.
func (c *Composer) runtime(in *Node, b *base) *Node {
	if in != nil && in == b.runtimeIn {
		return b.runtimeOut
	}
	out := in
	if out == nil || out.Kind != Map {
		out = newMap()
	}
	choices := &Node{Kind: Map}
	if old := out.Get("choices"); old != nil && old.Kind == Map {
		choices = old
	}
	for _, e := range b.choices {
		n := plainString(e.name)
		if e.name == "null" {
			n = newNull()
		}
		n.Origin = e.origin
		choices = choices.set(strKey(e.key), n)
	}
	put := func(key string, v *Node) {
		if v.Origin.Source == "" {
			v.Origin = Origin{Source: "hydra"}
		}
		out = out.set(strKey(key), v)
	}
	put("version", plainString(hydraVersion))
	put("version_base", plainString("1.4"))
	put("cwd", plainString(c.cwd))
	put("config_sources", c.sourceInfo)
	if c.req.OutputDir != "" {
		put("output_dir", plainString(c.req.OutputDir))
	}
	put("choices", choices)
	b.runtimeIn, b.runtimeOut = in, out
	return out
}

func sourceInfo(lib *library) *Node {
	out := newList()
	for _, s := range lib.sources {
		scheme, path, _ := strings.Cut(s.path, "://")
		out.Vals = append(out.Vals, &Node{Kind: Map, Keys: []Key{strKey("path"), strKey("schema"), strKey("provider")},
			Vals: []*Node{plainString(path), plainString(scheme), plainString(s.provider)}})
	}
	return out
}
