package texts

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"fulcrum/beamdata/conversation"
	"fulcrum/beamdata/summaries"
	"fulcrum/internal/chat"
)

// write puts files into a fresh folder and returns it.
func write(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// openTest opens one file as the test set.
func openTest(t *testing.T, path string, edit func(*Options)) (*conversation.Set, error) {
	t.Helper()
	opt := DefaultOptions()
	opt.Test = &path
	if edit != nil {
		edit(&opt)
	}
	b, err := Open(opt)
	if err != nil {
		return nil, err
	}
	return b.Eval, nil
}

func text(s string) *string { return &s }

func TestRecords(t *testing.T) {
	sample := func(name, source, target string) conversation.Sample {
		return conversation.Sample{Name: name, Reference: target, Messages: []chat.Message{{Role: "user", Text: source}}}
	}
	for _, c := range []struct {
		name, content string
		edit          func(*Options)
		want          conversation.Sample
	}{
		{"source and target", `{"id": "a", "source": "long", "target": "short"}`, nil, sample("a", "long", "short")},
		{"XSum, the id a number", `{"id": 7, "document": "long", "summary": "short"}`, nil, sample("7", "long", "short")},
		{"CNN/DailyMail", `{"article": "long", "highlights": "one\ntwo"}`, nil, sample("record 1", "long", "one\ntwo")},
		{"BillSum", `{"text": "long", "summary": "short", "title": "x"}`, nil, sample("record 1", "long", "short")},
		{"SAMSum", `{"dialogue": "A: hi\r\nB: hi", "summary": "hi"}`, nil, sample("record 1", "A: hi\r\nB: hi", "hi")},
		{"the first known pair", `{"text": "t", "summary": "short", "document": "d"}`, nil, sample("record 1", "d", "short")},
		{"columns by name", `{"en": "yes", "de": "ja", "nr": "n1"}`,
			func(o *Options) { o.Source, o.Target, o.ID = text("en"), text("de"), text("nr") }, sample("n1", "yes", "ja")},
		{"the source as id", `{"source": "long", "target": "short"}`, func(o *Options) { o.ID = text("source") }, sample("long", "long", "short")},
		{"one of them by name", `{"text": "t", "summary": "short", "document": "d"}`, func(o *Options) { o.Source = text("text") },
			sample("record 1", "t", "short")},
		{"a prefix", `{"source": "long", "target": "short"}`, func(o *Options) { o.Prefix = "summarize: " },
			sample("record 1", "summarize: long", "short")},
		{"recorded completions", `{"source": "s", "target": "t", "completions": [{"text": "u", "reward": 0.5}]}`, nil,
			conversation.Sample{Name: "record 1", Reference: "t", Messages: []chat.Message{{Role: "user", Text: "s"}},
				Completions: []conversation.Recorded{{Text: "u", Reward: 0.5}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, form := range []string{"%s\n", "[%s]"} {
				const name = "data[1].json" // no pattern where a file has the name
				dir := write(t, map[string]string{name: fmt.Sprintf(form, c.content)})
				set, err := openTest(t, filepath.Join(dir, name), c.edit)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := set.Sample(0); err != nil || !reflect.DeepEqual(got, c.want) {
					t.Errorf("got %+v, %v\nwant %+v", got, err, c.want)
				}
			}
		})
	}
}

func TestRecordsRefused(t *testing.T) {
	const good = `{"source": "s", "target": "t"}` + "\n"
	for _, c := range []struct {
		name, content string
		edit          func(*Options)
		want          string // FILE stands for the path
	}{
		{"a number", good + `{"id": "b", "source": 3, "target": "t"}`, nil, "FILE:2: source: got a JSON number, want a text"},
		{"a number, with an id", `{"id": "a", "source": "s", "target": "t"}` + "\n\n" + `{"id": "b", "source": "s", "target": null}`, nil,
			"FILE:3 (id b): target: got a JSON null, want a text"},
		{"a missing column", good + good + `{"source": "s"}`, nil, "FILE:3: no target: want a text"},
		{"an empty source", good + `{"source": " \n", "target": "t"}`, nil, "FILE:2: source is empty: want a text"},
		{"an empty target", `{"source": "s", "target": ""}`, nil, "FILE:1: target is empty: want a text"},
		{"damage", good + `{"source": "s" "target": "t"}`, nil, "FILE:2: byte 16: invalid character"},
		{"a file cut short", good + `{"source": "s`, nil, "FILE:2: record 2: the file ends within the record"},
		{"a line cut in a text", good + "{\"source\": \"abc\", \"targ\n" + good + good, nil,
			"FILE:2: record 2: byte 54: the line ends within a text"},
		{"a line cut behind a text", good + "{\"source\": \"abc\",\n" + good, nil, "FILE:2: record 2: the line ends within the record"},
		{"a last line cut", good + "{\n\"source\": {\n", nil, "FILE:2: record 2: the file ends within the record"},
		{"NaN", `{"source": "s", "target": "t", "completions": [{"text": "u", "reward": NaN}]}`, nil,
			"FILE:1: byte 72: JSON has no NaN, Infinity or None: want a number or null"},
		{"a NUL byte", good + "\x00\n" + good, nil, "FILE:2: record 2: byte 31: a NUL byte"},
		{"Latin-1", good + "{\"source\": \"caf\xe9\", \"target\": \"t\"}", nil, "FILE:2: record 2: not UTF-8: save the file in that encoding"},
		{"half of a character", good + good + `{"source": "\\ud800 \ude00\ud83d", "target": "t"}`, nil, `FILE:3: record 3: \ude00 is half of a`},
		{"an empty file", "", nil, "FILE holds no record"},
		{"no known columns", `{"a": "s", "b": "t"}`, nil, "FILE: no known pair of columns among a, b: name them by " +
			"data.texts.source and data.texts.target"},
		{"no known target", `{"a": "s", "b": "t"}`, func(o *Options) { o.Source = text("a") },
			"FILE: no column known to be the target of a among a, b: name it by data.texts.target"},
		{"a column that is not there", good, func(o *Options) { o.Source = text("sorce") },
			`FILE: data.texts.source: unknown column "sorce" (did you mean source?): want one of source, target`},
		{"a reward that overflows a mean", `{"source": "s", "target": "t", "completions": [{"text": "u", "reward": 1e308}]}`, nil,
			"FILE:1: completions[0]: reward = 1e+308, want a number within ±1e+30"},
		{"completions without rewards", `{"source": "s", "target": "t", "completions": [{"text": "u"}]}`, nil,
			"FILE:1: completions[0]: want"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(write(t, map[string]string{"d.jsonl": c.content}), "d.jsonl")
			_, err := openTest(t, path, c.edit)
			if want := strings.ReplaceAll(c.want, "FILE", path); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got  %v\nwant %s", err, want)
			}
		})
	}
	folder := t.TempDir()
	for path, want := range map[string]string{folder: "data.texts.test: open " + folder + ": want a regular file, it is a folder",
		"nowhere.jsonl": "data.texts.test: nowhere.jsonl does not exist: want a JSON, " +
			"JSONL or Parquet file", "no-*.jsonl": "data.texts.test=no-*.jsonl: no file has such a name"} {
		if _, err := openTest(t, path, nil); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	if _, err := Open(DefaultOptions()); err == nil || !strings.Contains(err.Error(), "data=texts needs a file") {
		t.Errorf("no file: got %v", err)
	}
}

// Several files are one list, a split is by seed alone, and the fingerprint covers what is read.
func TestFilesAndSplits(t *testing.T) {
	files := map[string]string{}
	for k := range 3 {
		var b strings.Builder
		for i := range 40 {
			fmt.Fprintf(&b, `{"id": "%d-%d", "source": "s", "target": "t"}`+"\n", k, i)
		}
		files[fmt.Sprintf("train-%d.jsonl", k)] = b.String()
	}
	pattern := filepath.Join(write(t, files), "train-*.jsonl")
	opt := DefaultOptions()
	opt.Train, opt.SplitSeed, opt.Demos = &pattern, 5, new(int)
	*opt.Demos = 10
	b, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	if b.Train.Len() != 96 || b.Val.Len() != 24 || b.Demos.Len() != 10 || b.Eval != nil || b.Counts["train_samples"] != 96 {
		t.Errorf("%d train, %d val, %d demos, counts %v", b.Train.Len(), b.Val.Len(), b.Demos.Len(), b.Counts)
	}
	seen := map[string]bool{}
	for _, set := range []*conversation.Set{b.Train, b.Val} {
		for i := range set.Len() {
			s, err := set.Sample(i)
			if err != nil || seen[s.Name] {
				t.Fatalf("%s: %v, or twice", s.Name, err)
			}
			seen[s.Name] = true
		}
	}
	if !seen["0-0"] || !seen["2-39"] || len(seen) != 120 {
		t.Errorf("%d records of 120", len(seen))
	}
	same, err := Open(opt)
	if err != nil || same.Fingerprint != b.Fingerprint {
		t.Errorf("a second time the fingerprint differs (%v)", err)
	}
	for name, edit := range map[string]func(*Options){
		"split_seed": func(o *Options) { o.SplitSeed = 6 }, "prefix": func(o *Options) { o.Prefix = "p" },
		"target": func(o *Options) { o.Target, o.Source = text("source"), text("target") },
	} {
		changed := opt
		edit(&changed)
		if other, err := Open(changed); err != nil || other.Fingerprint == b.Fingerprint {
			t.Errorf("another %s gives the same fingerprint (%v)", name, err)
		}
	}
}

func TestParquet(t *testing.T) {
	path := filepath.Join("..", "..", "internal", "parquet", "testdata", "duck_snappy_v1.parquet")
	set, err := openTest(t, path, func(o *Options) { *o.CheckRecords = 0 })
	if err != nil {
		t.Fatal(err)
	}
	if set.Len() != 250 {
		t.Errorf("%d records", set.Len())
	}
	if s, err := set.Sample(249); err != nil || s.Name != "61996" || s.Text() != "document 4 word word word word  é249" ||
		s.Reference != "sum 1" {
		t.Errorf("got %+v, %v", s, err)
	}
	if by, err := set.Clusters("summary"); err != nil || by[249] != "sum 1" || by[1] != "" {
		t.Errorf("by a column: %q and %q, %v", by[249], by[1], err)
	}
	if by, err := set.Clusters("sumary"); err != nil || len(by) > 0 {
		t.Errorf("by a column that is not there: %v, %v", by, err)
	}
	if _, err := set.Sample(1); err == nil || err.Error() != path+": row 2 (id -4): summary: got null, want a text" {
		t.Errorf("a null: got %v", err)
	}
	if _, err := openTest(t, path, func(o *Options) { o.Source, o.Target = text("l"), text("summary") }); err == nil ||
		err.Error() != path+": row 1 (id -5): column l: want text or whole numbers, not nested" {
		t.Errorf("a nested column: got %v", err)
	}
	if _, err := openTest(t, path, func(o *Options) { o.Source, o.Target = text("sumary"), text("document") }); err == nil ||
		!strings.Contains(err.Error(), "did you mean summary?") {
		t.Errorf("a column that is not there: got %v", err)
	}
}

func TestSummaries(t *testing.T) {
	sizes := summaries.DefaultOptions()
	sizes.Train, sizes.Val, sizes.Test = 30, 20, 10
	opt := DefaultOptions()
	opt.Prefix = "summarize: "
	b, err := Summaries(sizes, opt)
	if err != nil {
		t.Fatal(err)
	}
	if b.Train.Len() != 30 || b.Val.Len() != 20 || b.Eval.Len() != 10 || b.EvalName != "test" || !b.Synthetic {
		t.Errorf("%+v", b)
	}
	set := summaries.New(sizes)
	e := set.Example(summaries.Test, 3)
	s, err := b.Eval.Sample(3)
	if err != nil || s.Text() != "summarize: "+e.Source || s.Reference != e.Target {
		t.Errorf("got %+v, %v\nwant %+v", s, err, e)
	}
	sizes.Drafts = 7
	if b, err = Summaries(sizes, opt); err != nil || b.Demos.Len() != 7 {
		t.Errorf("%d drafts (%v), want 7", b.Demos.Len(), err)
	}
	if d, err := b.Demos.Sample(3); err != nil || !strings.HasPrefix(d.Text(), "summarize: ") || d.Reference == s.Reference {
		t.Errorf("got %+v, %v", d, err)
	}
	sizes.Drafts = 0
	sizes.Seed++
	if other, err := Summaries(sizes, opt); err != nil || other.Fingerprint == b.Fingerprint {
		t.Errorf("another seed gives the same fingerprint (%v)", err)
	}
}
