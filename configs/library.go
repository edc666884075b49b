package configs

import (
	"cmp"
	"embed"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed all:conf
var embedded embed.FS

// Library is the YAML tree built into the program: our groups, and Hydra's own below hydra/.
func Library() fs.FS {
	sub, _ := fs.Sub(embedded, "conf") // a valid path
	return sub
}

// source is one entry of the search path.
type source struct {
	provider string // who added it: hydra, main, command-line, …
	path     string // as shown to users: file:///… or pkg://…
	display  string // prefix of file names in messages
	fsys     fs.FS
	visible  func(name string) bool // nil: everything is
}

func (s *source) shows(name string) bool { return s.visible == nil || s.visible(name) }

// Hydra serves its own configs twice: those of its package stand before the user's, and those it registers from code
// stand behind. So a user's hydra/launcher/slurm.yaml is the one that counts, whatever launchers this program has.
func ofHydra(name string) bool { return name == "hydra" || strings.HasPrefix(name, "hydra/") }

func ofHydraPackage(name string) bool {
	return ofHydra(name) && name != "hydra/config.yaml" && !strings.HasPrefix(name, "hydra/launcher") &&
		!strings.HasPrefix(name, "hydra/sweeper") && !strings.HasSuffix(name, "/colorlog.yaml")
}

// library finds configs and groups along the search path. Files are read and parsed once.
type library struct {
	sources []*source
	files   map[string]*configFile // by config path; nil = no such file
	groups  map[string]bool
}

// configFile is a parsed config.
type configFile struct {
	name     string // config path: group/option
	file     string // as the user can open it
	content  *Node  // without defaults
	defaults []*item
	pkg      string // of the header
	hasPkg   bool
}

func (l *library) add(s *source) { l.sources = append(l.sources, s) }

// builtinFiles begins the names of the files of the built-in tree in messages.
const builtinFiles = "configs/conf/"

// embeddedSource serves the built-in tree, as far as it is visible.
func embeddedSource(provider string, fsys fs.FS, visible func(name string) bool) *source {
	return &source{provider: provider, path: "pkg://configs.conf", display: builtinFiles, fsys: fsys, visible: visible}
}

func dirSource(provider, dir string) (*source, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errorf("there is no %s", dir)
	}
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, errorf("%s is a file: want a directory", dir)
	}
	return &source{provider: provider, path: "file://" + abs, display: strings.TrimSuffix(dir, "/") + "/", fsys: os.DirFS(dir)}, nil
}

// searchPathEntry opens an entry of hydra.searchpath: a path, file://… or pkg://…
func searchPathEntry(provider, entry string, lib fs.FS) (*source, error) {
	switch {
	case strings.HasPrefix(entry, "file://"):
		return dirSource(provider, strings.TrimPrefix(entry, "file://"))
	case strings.HasPrefix(entry, "pkg://"):
		name := strings.ReplaceAll(strings.TrimPrefix(entry, "pkg://"), ".", "/")
		if name == "configs/conf" || name == "conf" || name == "fulcrum/conf" || name == "fulcrum" {
			return embeddedSource(provider, lib, nil), nil
		}
		return nil, errorf("no package %s in this program: want pkg://configs.conf", entry)
	case strings.Contains(entry, "://"):
		return nil, errorf("unknown scheme in %s: want a path, file://PATH or pkg://configs.conf", entry)
	}
	return dirSource(provider, entry)
}

func fileName(config string) string {
	if strings.HasSuffix(config, ".yaml") {
		return config
	}
	return config + ".yaml"
}

// first returns the first source that has a file, or a folder, of this name; nil: none.
func (l *library) first(name string, folder bool) *source {
	if !fs.ValidPath(name) {
		return nil
	}
	for _, s := range l.sources {
		if !s.shows(name) {
			continue
		}
		if info, err := fs.Stat(s.fsys, name); err == nil && info.IsDir() == folder {
			return s
		}
	}
	return nil
}

// load parses a config once; nil without an error when no source has it.
func (l *library) load(config string) (*configFile, error) {
	if f, ok := l.files[config]; ok {
		return f, nil
	}
	name := fileName(config)
	s := l.first(name, false)
	if s == nil {
		l.files[config] = nil
		return nil, nil
	}
	data, err := readConfig(s.fsys, name)
	if err != nil {
		return nil, errorf("cannot read %s: %v", s.display+name, err)
	}
	f := &configFile{name: config, file: s.display + name}
	if f.pkg, f.hasPkg, err = readHeader(f.file, data); err != nil {
		return nil, err
	}
	root, err := readYAML(f.file, data)
	if err != nil {
		return nil, err
	}
	if d := root.Get("defaults"); d != nil {
		if f.defaults, err = parseDefaults(config, d); err != nil {
			return nil, err
		}
		root = root.without("defaults")
	}
	f.content = root
	l.files[config] = f
	return f, nil
}

// group reports whether name is a directory in any source.
func (l *library) group(name string) bool {
	found, known := l.groups[name]
	if !known {
		found = name != "" && l.first(name, true) != nil
		l.groups[name] = found
	}
	return found
}

// list returns the options (or the sub-groups) of a group in all sources, sorted.
func (l *library) list(group string, subgroups bool) ([]string, error) {
	group = cmp.Or(group, ".")
	if !fs.ValidPath(group) {
		return nil, nil
	}
	seen := map[string]bool{}
	for _, s := range l.sources {
		if group != "." && !s.shows(group) {
			continue
		}
		entries, err := fs.ReadDir(s.fsys, group)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, errorf("cannot list the group %s: %v", group, err)
		}
		for _, e := range entries {
			name := e.Name()
			if !s.shows(path.Join(group, name)) || name == "__pycache__" {
				continue
			}
			if info, err := fs.Stat(s.fsys, path.Join(group, name)); err != nil || info.IsDir() != subgroups { // a link is what it leads to
				continue
			}
			switch {
			case subgroups:
				seen[name] = true
			case strings.HasSuffix(name, ".yaml"):
				seen[strings.TrimSuffix(name, ".yaml")] = true
			case strings.HasSuffix(name, ".yml"):
				return nil, errorf("%s%s/%s: config files end in .yaml: rename it", s.display, group, name)
			}
		}
	}
	return slices.Sorted(maps.Keys(seen)), nil
}

// allConfigs returns the paths of all configs.
func (l *library) allConfigs() []string {
	out, err := l.list("", false)
	if err != nil {
		return nil
	}
	groups, options, err := l.allGroups("")
	if err != nil {
		return out
	}
	for _, g := range groups {
		for _, o := range options[g] {
			out = append(out, g+"/"+o)
		}
	}
	return out
}

// allGroups returns every group below a prefix that has options, sorted, with its options.
func (l *library) allGroups(prefix string) (groups []string, options map[string][]string, err error) {
	options = map[string][]string{}
	var walk func(group string) error
	walk = func(group string) error {
		opts, err := l.list(group, false)
		if err != nil {
			return err
		}
		if len(opts) > 0 && group != "" {
			groups = append(groups, group)
			options[group] = opts
		}
		subs, err := l.list(group, true)
		if err != nil {
			return err
		}
		for _, s := range subs {
			if err := walk(path.Join(group, s)); err != nil {
				return err
			}
		}
		return nil
	}
	err = walk(prefix)
	slices.Sort(groups)
	return groups, options, err
}

// maxConfig is the most bytes that a config file may have: data belongs into data files.
const maxConfig = 4 << 20

// readConfig reads a regular file of bounded size.
func readConfig(fsys fs.FS, name string) ([]byte, error) {
	info, err := fs.Stat(fsys, name)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errorf("want a regular file")
	case info.Size() > maxConfig:
		return nil, errorf("%d bytes: want at most %d, and data in data files", info.Size(), maxConfig)
	}
	return fs.ReadFile(fsys, name)
}
