package conversation

import (
	"cmp"
	"fmt"
	"os"
	"slices"
)

// Fits reports whether a record with these keys is a conversation.
func Fits(keys []string) bool {
	return slices.ContainsFunc(keys, func(key string) bool { return key == "conversations" || key == "messages" || key == "prompt" })
}

// Inspect returns what a conversations file holds, as names with values, and the first fault for which a run would
// refuse it, which leaves out a share of the records at most. Pictures are looked up, not opened.
func Inspect(path string, share float64) (facts [][2]string, fault error) {
	opt := DefaultOptions()
	f, err := openFile(path, "train", opt, nil)
	if err != nil {
		return nil, err
	}
	add := func(name, format string, args ...any) {
		facts = append(facts, [2]string{name, fmt.Sprintf(format, args...)})
	}
	var turns, images, videos, targets, answered, recorded, faulty, absent int
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
				switch p.Type {
				case "image":
					images++
				case "video":
					videos++
				}
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
			if _, err := os.Stat(path); err != nil {
				if absent++; missing == "" {
					missing = fmt.Sprintf("%s: no file %s", f.at(row, s.Name), path)
				}
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
	add("images", "%d", images)
	if videos > 0 {
		add("videos", "%d", videos)
	}
	add("with a target", "%d (an assistant's last turn, or answers: what sft imitates)", targets)
	if answered > 0 {
		add("with answers", "%d", answered)
	}
	if recorded > 0 {
		add("recorded completions", "%d", recorded)
	}
	if faulty > 0 {
		add("that do not decode", "%d", faulty)
	}
	kept, skipped, err := NewSet("file", f, Rows(n)).With(Order)
	for _, s := range skipped {
		if add("not used", "%s", s); fault == nil && float64(n-kept.Len()) > share*float64(n) {
			fault = fmt.Errorf("%s: %s: data.max_skipped_share=%g allows %.3g %%", path, s, share, 100*share)
		}
	}
	for _, u := range f.unknown {
		add("unknown key", "%s", u)
	}
	return facts, cmp.Or(fault, err)
}
