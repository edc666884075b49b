package main

import (
	"cmp"
	_ "embed" // help_index.txt
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"fulcrum/internal/list"
	"fulcrum/internal/program"
	"fulcrum/internal/registry"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
)

// helpLines is how many lines a search of the help prints.
const helpLines = 21

// helpIndex holds options of groups, metrics, and the findings, errors and headings of docs/, a line each: kind, name, meaning, with
// tabs between.
//
//go:embed help_index.txt
var helpIndex string

// topic is something that `run help WORD` finds. Its kind says what shows more of it.
type topic struct{ kind, name, means string }

// topics is all that the help knows, kind by kind.
func (s *session) topics() ([]topic, error) {
	var all []topic
	for _, group := range commandGroups() {
		for _, c := range group.commands {
			if !s.lacks(c.name) {
				all = append(all, topic{"Commands: `run help NAME`", c.name, c.does})
			}
		}
	}
	schema, err := s.app.Schema()
	if err != nil {
		return nil, err
	}
	for _, key := range schema.Keys() {
		all = append(all, topic{"Keys: `run explain KEY`", key, schema.Help(key)})
	}
	for line := range strings.Lines(helpIndex) {
		columns := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		all = append(all, topic{columns[0], columns[1], columns[2]})
	}
	return all, nil
}

// search prints what there is about some words, by kind, the best matches first; behind --all all of it, each line whole.
func (s *session) search(about string) error {
	about, whole := strings.CutPrefix(about, "--all ")
	all, err := s.topics()
	if err != nil {
		return err
	}
	rank := placing(strings.ToLower(about))
	names := list.Map(all, func(t topic) string { return t.name })
	if all = list.Filter(all, func(t topic) bool { return rank(t) >= 0 }); len(all) == 0 {
		return usage.Errorf("the help has nothing about %.60q%s; `run help` lists commands", about,
			registry.DidYouMean(registry.Suggest(about, names)))
	}
	slices.SortStableFunc(all, func(a, b topic) int { return cmp.Compare(rank(a), rank(b)) })
	var kinds []string // by their best matches
	found := map[string][]topic{}
	for _, t := range all {
		if found[t.kind] = append(found[t.kind], t); len(found[t.kind]) == 1 {
			kinds = append(kinds, t.kind)
		}
	}
	shown := map[string]int{} // one more of each kind in turn, until the lines are used up
	left := min(helpLines-1-len(kinds), len(all))
	if whole {
		left = len(all)
	}
	more := len(all) > left
	for left > 0 {
		for _, kind := range kinds {
			if left > 0 && shown[kind] < len(found[kind]) {
				shown[kind], left = shown[kind]+1, left-1
			}
		}
	}
	var b strings.Builder
	for _, kind := range kinds {
		b.WriteString(program.AsCalled(kind))
		if n := len(found[kind]); shown[kind] < n {
			fmt.Fprintf(&b, " (%d of %d)", shown[kind], n)
		}
		b.WriteString("\n")
		for _, t := range found[kind][:shown[kind]] {
			line := []rune(strings.TrimRight(strings.ReplaceAll(fmt.Sprintf("  %-24s  %s", t.name, t.means), "`", ""), " "))
			if whole {
				line = []rune(stdout.Fold(string(line), helpWidth, 4))
			} else if len(line) > helpWidth {
				line, more = append(line[:helpWidth-1], '…'), true
			}
			b.WriteString(string(line) + "\n")
		}
	}
	if more && len(about) < helpWidth/2 {
		b.WriteString(program.AsCalled("All of it, uncut: `run help --all " + about + "`\n"))
	}
	return s.write(b.String(), nil)
}

// placing returns how well a topic fits words: 0 is named so, 1 begins so, 2 has them in its name, 3 in name or meaning, -1 does not.
// Of an error a whole message may be given, as the program printed it.
func placing(about string) func(topic) int {
	words := list.Map(strings.FieldsFunc(about, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }),
		func(word string) *regexp.Regexp { return regexp.MustCompile(`(^|[^\pL\d])` + regexp.QuoteMeta(word)) })
	named := regexp.MustCompile(`(^|[.=/#])` + regexp.QuoteMeta(about) + `$`)
	in := func(text string) bool {
		return len(words) > 0 && !slices.ContainsFunc(words, func(w *regexp.Regexp) bool { return !w.MatchString(text) })
	}
	says := func(part string) bool { return len(part) > 11 && strings.Contains(about, part) } // shorter ones are in many messages
	return func(t topic) int {
		switch name := strings.ToLower(t.name); {
		case named.MatchString(name), strings.Contains(name, "`") && slices.ContainsFunc(strings.Split(name, "`"), says):
			return 0
		case strings.HasPrefix(name, about):
			return 1
		case in(name):
			return 2
		case in(name + " " + strings.ToLower(t.means)):
			return 3
		}
		return -1
	}
}
