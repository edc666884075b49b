package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"fulcrum/configs"
	"fulcrum/experiments/tasks"
	"fulcrum/internal/testkit/golden"
)

func schema(t *testing.T) *configs.Schema {
	t.Helper()
	s, err := tasks.Schema(tasks.Frozen)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// page is a Markdown file split into its text and its blocks of commands.
type page struct {
	name     string // relative to the repository
	text     string
	spans    []span // `code` in running text
	commands []span // lines of ```sh blocks, continuation lines joined, comments cut
	links    []span // targets of [text](target)
}

type span struct {
	line int
	text string
}

var (
	codeSpan = regexp.MustCompile("`([^`\n]+)`")
	linkSpan = regexp.MustCompile(`\]\(([^)\s]+)\)`)
)

// pages reads README.md, CHANGELOG.md and docs/*.md: what says how the program is.
func pages(t *testing.T) []page {
	t.Helper()
	out := readPages(t, "docs/*.md", "README.md", "CHANGELOG.md")
	if len(out) < 9 {
		t.Fatalf("%d pages, want README, CHANGELOG and at least seven in docs/", len(out))
	}
	return out
}

// readPages reads the Markdown files that match the patterns, which are relative to the repository.
func readPages(t *testing.T, patterns ...string) []page {
	t.Helper()
	root := golden.RepoRoot()
	var out []page
	for _, pattern := range patterns {
		names, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			relative, err := filepath.Rel(root, name)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, parsePage(filepath.ToSlash(relative), string(text)))
		}
	}
	return out
}

func parsePage(name, text string) page {
	p := page{name: name, text: text}
	block, open := "", span{}
	for i, line := range strings.Split(text, "\n") {
		if fence, ok := strings.CutPrefix(strings.TrimSpace(line), "```"); ok {
			if block == "" {
				block = "text"
				if fence != "" {
					block = fence
				}
			} else {
				block = ""
			}
			continue
		}
		switch block {
		case "":
			for _, m := range codeSpan.FindAllStringSubmatch(line, -1) {
				p.spans = append(p.spans, span{i + 1, m[1]})
			}
			for _, m := range linkSpan.FindAllStringSubmatch(line, -1) {
				p.links = append(p.links, span{i + 1, m[1]})
			}
		case "sh":
			if open.text == "" {
				open.line = i + 1
			}
			part, more := strings.CutSuffix(line, `\`)
			open.text += part
			if !more {
				if command, _, _ := strings.Cut(open.text, " #"); strings.TrimSpace(command) != "" && !strings.HasPrefix(command, "#") {
					p.commands = append(p.commands, span{open.line, strings.TrimSpace(command)})
				}
				open = span{}
			}
		}
	}
	return p
}

// names are the keys, groups and commands that exist.
type names struct {
	keys     map[string]bool // leaves and sections
	top      map[string]bool // sections at the top
	groups   map[string][]string
	verbs    []string
	tasks    []string
	makefile string
}

func existing(t *testing.T) names {
	t.Helper()
	n := names{keys: map[string]bool{}, top: map[string]bool{}, groups: map[string][]string{}}
	for _, key := range schema(t).Keys() {
		n.keys[key] = true
		for at := range len(key) {
			if key[at] == '.' {
				n.keys[key[:at]] = true
			}
		}
		if section, _, nested := strings.Cut(key, "."); nested {
			n.top[section] = true
		}
	}
	err := fs.WalkDir(configs.Library(), ".", func(name string, entry fs.DirEntry, err error) error {
		if option, ok := strings.CutSuffix(name, ".yaml"); ok && err == nil {
			group := filepath.ToSlash(filepath.Dir(option))
			n.groups[group] = append(n.groups[group], filepath.Base(option))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	commands, err := os.ReadFile(docsPath("commands.md")) // which cmd/run writes from its table of verbs
	if err != nil {
		t.Fatal(err)
	}
	for _, heading := range regexp.MustCompile(`(?m)^## (.+)$`).FindAllStringSubmatch(string(commands), -1) {
		n.verbs = append(n.verbs, heading[1])
	}
	n.verbs = append(n.verbs, "help")
	n.tasks = tasks.Entries(tasks.Frozen).Tasks.Names()
	makefile, err := os.ReadFile(filepath.Join(golden.RepoRoot(), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	n.makefile = string(makefile)
	return n
}

var (
	assignment = regexp.MustCompile(`^[+~]{0,2}([a-z_][a-zA-Z0-9_/]*(?:\.[a-zA-Z0-9_]+)*)=(.*)$`)
	dotted     = regexp.MustCompile(`^([a-z_][a-z0-9_]*)((?:\.[a-z0-9_]+)+)(?:: .*)?$`)
	fileEnding = regexp.MustCompile(`\.(go|ya?ml|md|jsonl?|npz|npy|pt|pth|ckpt|safetensors|log|sh|cc|h|so|png|svg|html)$`)
	option     = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
)

// check returns what is wrong with one override as the docs write it, or "".
func (n names) check(word string) string {
	m := assignment.FindStringSubmatch(strings.Trim(word, `'"`))
	if m == nil {
		return ""
	}
	key, value := m[1], strings.Trim(m[2], `'"`)
	if options, ok := n.groups[key]; ok && key != "." {
		for _, v := range strings.Split(value, ",") {
			if option.MatchString(v) && v != "null" && !slices.Contains(options, v) {
				return key + "=" + v + ": the library has no such option, only " + strings.Join(options, ", ")
			}
		}
		return ""
	}
	if key == "task" && option.MatchString(value) && !slices.Contains(n.tasks, value) {
		return "task=" + value + ": want one of " + strings.Join(n.tasks, ", ")
	}
	if !n.keys[key] && !strings.HasPrefix(key, "hydra.") {
		return "no key or group " + key
	}
	return ""
}

// TestMentionedNamesExist goes over every `code` span: overrides, dotted keys, verbs, make targets.
func TestMentionedNamesExist(t *testing.T) {
	n := existing(t)
	checked := 0
	for _, p := range pages(t) {
		for _, s := range p.spans {
			for _, word := range strings.Fields(s.text) {
				if assignment.MatchString(strings.Trim(word, `'"`)) && !strings.HasPrefix(word, "-") {
					checked++
					if wrong := n.check(word); wrong != "" {
						t.Errorf("%s:%d: `%s`: %s", p.name, s.line, s.text, wrong)
					}
				}
			}
			if m := dotted.FindStringSubmatch(s.text); m != nil && n.top[m[1]] && !fileEnding.MatchString(s.text) {
				checked++
				if !n.keys[m[1]+m[2]] {
					t.Errorf("%s:%d: `%s`: no such key", p.name, s.line, s.text)
				}
			}
			n.command(t, p.name, s, false)
		}
	}
	if checked < 60 {
		t.Errorf("%d names checked, want at least 60", checked)
	}
}

// command checks the verb or make target of a command line; whole lines are composed too.
func (n names) command(t *testing.T, page string, s span, compose bool) {
	t.Helper()
	words := split(s.text)
	if len(words) == 0 {
		return
	}
	switch {
	case words[0] == "make" && len(words) > 1:
		for _, target := range words[1:] {
			if args, ok := strings.CutPrefix(target, "ARGS="); ok {
				if compose {
					n.compose(t, page, s, split(args))
				}
			} else if option.MatchString(strings.ReplaceAll(target, "-", "")) && !strings.Contains("\n"+n.makefile, "\n"+target+":") {
				t.Errorf("%s:%d: %s: the Makefile has no target %s", page, s.line, s.text, target)
			}
		}
	case (words[0] == "bin/run" || words[0] == "run") && len(words) > 1:
		if first := words[1]; option.MatchString(first) && !slices.Contains(n.verbs, first) {
			t.Errorf("%s:%d: %s: no command %s, only %s", page, s.line, s.text, first, strings.Join(n.verbs, ", "))
		}
		if compose && words[1] != "ls" { // whose --where takes columns too
			n.compose(t, page, s, words[1:])
		}
	}
}

// TestCommandsCompose composes every command of the ```sh blocks, sweeps job by job.
func TestCommandsCompose(t *testing.T) {
	n := existing(t)
	composed := 0
	for _, p := range pages(t) {
		for _, s := range p.commands {
			before := t.Failed()
			n.command(t, p.name, s, true)
			if !before && !t.Failed() {
				composed++
			}
		}
	}
	if composed < 15 {
		t.Errorf("%d commands checked, want at least 15", composed)
	}
}

// compose composes the overrides among args as the program would.
func (n names) compose(t *testing.T, page string, s span, args []string) {
	t.Helper()
	req := configs.Request{Library: configs.Library(), Schema: schema(t), Now: time.Unix(0, 0), AppName: "run"}
	for i, a := range args {
		switch {
		case a == "-m" || a == "--multirun" || a == "ask" && slices.ContainsFunc(args, assignment.MatchString):
			req.Multirun = true
		case a == "|" || a == ">" || a == "2>":
			args = args[:i]
		case a == "--rerun":
			return // its configuration lies in a folder
		case assignment.MatchString(a) && !strings.HasPrefix(a, "-"):
			if wrong := n.check(a); wrong != "" {
				t.Errorf("%s:%d: %s: %s", page, s.line, s.text, wrong)
			}
			req.Overrides = append(req.Overrides, a)
		}
	}
	c, err := configs.NewComposer(req)
	if err != nil {
		t.Errorf("%s:%d: %s: %v", page, s.line, s.text, err)
		return
	}
	master, err := c.Compose()
	if err != nil {
		t.Errorf("%s:%d: %s: %v", page, s.line, s.text, err)
		return
	}
	if !req.Multirun {
		return
	}
	if master.Choice("hydra/sweeper") != "basic" { // its jobs are chosen while they run
		if dims, _, err := c.Space(master); err != nil || len(dims) == 0 {
			t.Errorf("%s:%d: %s: %d keys are swept (%v)", page, s.line, s.text, len(dims), err)
		}
		return
	}
	jobs, err := c.Expand(master)
	if err != nil || len(jobs) < 2 {
		t.Errorf("%s:%d: %s: %d jobs, want a sweep (%v)", page, s.line, s.text, len(jobs), err)
		return
	}
	for i, overrides := range jobs {
		if _, err := c.Job(master, i, overrides); err != nil {
			t.Errorf("%s:%d: %s: job %d: %v", page, s.line, s.text, i, err)
		}
	}
}

// split cuts a command into words as a shell does, quotes included.
func split(command string) []string {
	var words []string
	word, quote, inside := "", rune(0), false
	for _, c := range command {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word += string(c)
		case c == '\'' || c == '"':
			quote, inside = c, true
		case c == ' ' || c == '\t':
			if inside || word != "" {
				words = append(words, word)
			}
			word, inside = "", false
		default:
			word += string(c)
		}
	}
	if inside || word != "" {
		words = append(words, word)
	}
	return words
}

// TestChecksCanFail: the checks above find what is wrong.
func TestChecksCanFail(t *testing.T) {
	n := existing(t)
	for word, wrong := range map[string]bool{
		"exp=okvqa_v3": false, "exp=okvqa_v9": true, "grpo.kl.beta=0": false, "grpo.kl.bta=0": true,
		"task=predict": false, "task=fly": true, "data.root=DIR": false, "hydra.run.dir=X": false, "selector=v3,relation": false,
		"selector=v3,nothing": true, "seed='range(0,2)'": false,
	} {
		if got := n.check(word) != ""; got != wrong {
			t.Errorf("check(%q) finds a fault: %v, want %v", word, got, wrong)
		}
	}
	p := parsePage("x.md", "see `a.b` and [c](d.md)\n```sh\nbin/run -m \\\n  seed='range(0,2)'   # two\n```\n")
	if len(p.spans) != 1 || len(p.links) != 1 || len(p.commands) != 1 || len(split(p.commands[0].text)) != 3 {
		t.Errorf("got %+v, want one span, one link and one command of three words", p)
	}
}
