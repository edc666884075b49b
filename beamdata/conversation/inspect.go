package conversation

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"fulcrum/internal/chat"
)

// Fits reports whether a record with these keys is a conversation.
func Fits(keys []string) bool {
	return slices.ContainsFunc(keys, func(key string) bool { return key == "conversations" || key == "messages" || key == "prompt" })
}

// Inspect returns what a conversations file holds, as names with values, and the first fault for which a run would
// refuse it, which leaves out a share of the records at most. look returns what is wrong with a picture.
func Inspect(path string, share float64, look func(string) error) (facts [][2]string, fault error) {
	opt := DefaultOptions()
	f, err := openFile(path, "train", opt)
	if err != nil {
		return nil, err
	}
	add := func(name, format string, args ...any) {
		facts = append(facts, [2]string{name, fmt.Sprintf(format, args...)})
	}
	some := func(name string, n int) {
		if n > 0 {
			add(name, "%d", n)
		}
	}
	parts := map[string]int{}
	var turns, targets, answered, recorded, faulty, absent int
	missing := ""
	for row := range int64(f.index.Len()) {
		s, err := f.Sample(row)
		if err != nil {
			if faulty++; fault == nil {
				fault = err
			}
			continue
		}
		turns += len(s.Messages)
		for _, m := range s.Messages {
			for _, p := range m.Parts {
				parts[p.Type]++
			}
		}
		if s.Reference != "" {
			targets++
			turns++
		}
		if len(s.Answers) > 0 {
			answered++
		}
		recorded += len(s.Completions)
		for _, path := range s.paths() {
			err := look(path)
			if errors.Is(err, fs.ErrNotExist) {
				if absent++; missing == "" {
					missing = fmt.Sprintf("%s: no file %s", f.at(row, s.Name), path)
				}
			} else if err != nil && fault == nil {
				fault = fmt.Errorf("%s: %w", f.at(row, s.Name), err)
			}
		}
	}
	if fault == nil && missing != "" {
		fault = fmt.Errorf("%s (%d files are missing; relative paths start from data.root, else from the folder of the "+
			"conversations file)", missing, absent)
	}
	n := f.index.Len()
	add("records", "%d", n)
	add("turns", "%d (%.1f a record)", turns, float64(turns)/float64(n))
	add("images", "%d", parts[chat.Image])
	some("videos", parts[chat.Video])
	add("with a target", "%d (an assistant's last turn, or answers: what sft imitates)", targets)
	some("with answers", answered)
	some("recorded completions", recorded)
	some("that do not decode", faulty)
	set := NewSet("file", f, Rows(n))
	for i, who := range []string{"a run", "sft"}[:1+min(targets+recorded, 1)] { // sft takes no prompts
		kept, skipped, err := set.With([]Need{Order, Target}[i])
		for _, s := range skipped {
			if add("not used", "%s", s); fault == nil && float64(n-kept.Len()) > share*float64(n) {
				fault = fmt.Errorf("%s: %s would leave out %s: data.max_skipped_share=%g allows %.3g %%", path, who, s, share, 100*share)
			}
		}
		set, fault = kept, cmp.Or(fault, err)
	}
	for _, u := range f.unknown {
		add("unknown key", "%s", u)
	}
	return facts, fault
}
