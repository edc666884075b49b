package conversation

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"fulcrum/beamdata/jsonrecords"
	"fulcrum/internal/chat"
)

// write puts files into a fresh folder and returns it. Names ending in .png become empty files.
func write(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// one opens a file that holds one record and returns its sample.
func one(t *testing.T, dir, content string) (Sample, error) {
	t.Helper()
	path := filepath.Join(dir, "data.json")
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	opt := DefaultOptions()
	opt.Eval = &path
	b, err := Open(opt)
	if err != nil {
		return Sample{}, err
	}
	return b.Eval.Sample(0)
}

func TestRecords(t *testing.T) {
	dir := write(t, map[string]string{"a.png": "", "b.png": "", "clip.mp4": "", "f/frame_10.png": "", "f/frame_9.png": "",
		"f/frame_1.png": "", "f/notes.txt": ""})
	at := func(name string) string { return filepath.Join(dir, name) }
	image := func(name string) chat.Part { return chat.Part{Type: "image", Path: at(name)} }
	words := func(s string) chat.Part { return chat.Part{Type: "text", Text: s} }
	user := func(parts ...chat.Part) chat.Message { return chat.Message{Role: "user", Parts: parts} }
	for _, tc := range []struct {
		name, json string
		want       Sample
	}{
		{
			"the recipe's form: one image, the line end after the tag stays",
			`[{"id": "q1", "image": "a.png", "conversations": [{"from": "human", "value": "<image>\nWhat is it?"}, {"from": ` +
				`"gpt", "value": "A cat."}]}]`,
			Sample{Name: "q1", Messages: []chat.Message{user(image("a.png"), words("\nWhat is it?"))}, Reference: "A cat."},
		},
		{
			"tags take the files in order, wherever they stand",
			`[{"id": 7, "image": ["a.png", "b.png"], "conversations": [{"from": "human", "value": "Is <image> or <image> ` +
				`bigger?"}, {"from": "gpt", "value": "b"}]}]`,
			Sample{Name: "7", Messages: []chat.Message{user(words("Is "), image("a.png"), words(" or "), image("b.png"),
				words(" bigger?"))}, Reference: "b"},
		},
		{
			"earlier turns are part of the prompt; a tag in what the model says is text",
			`{"image": "a.png", "conversations": [{"from": "system", "value": "Be short."}, {"from": "human", "value": ` +
				`"<image>"}, {"from": "gpt", "value": "an <image>"}, {"from": "human", "value": "Sure?"}, {"from": "gpt", ` +
				`"value": "yes"}]}`,
			Sample{Name: "record 1", Messages: []chat.Message{{Role: "system", Text: "Be short."}, user(image("a.png")),
				{Role: "assistant", Text: "an <image>"}, {Role: "user", Text: "Sure?"}}, Reference: "yes"},
		},
		{
			"a last user turn leaves no reference but the most frequent answer",
			`{"conversations": [{"from": "human", "value": "Why?"}], "answers": ["x", {"answer": "y"}, "y"]}`,
			Sample{Name: "record 1", Messages: []chat.Message{{Role: "user", Text: "Why?"}}, Reference: "y",
				Answers: []string{"x", "y", "y"}},
		},
		{
			"TRL's columns: a prompt and its completion",
			`{"prompt": "The sky is", "completion": " blue."}`,
			Sample{Name: "record 1", Messages: []chat.Message{{Role: "user", Text: "The sky is"}}, Reference: " blue."},
		},
		{
			"TRL's columns: messages",
			`{"prompt": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Why?"}], "completion": [{"role": ` +
				`"assistant", "content": "so"}]}`,
			Sample{Name: "record 1", Messages: []chat.Message{{Role: "system", Text: "Be short."}, {Role: "user", Text: "Why?"}},
				Reference: "so"},
		},
		{
			"TRL's columns: a prompt and its answer, and pictures",
			`{"prompt": "<image>2 + 3?", "answer": 5, "images": ["a.png"]}`,
			Sample{Name: "record 1", Messages: []chat.Message{user(image("a.png"), words("2 + 3?"))}, Reference: "5"},
		},
		{
			"an answer of any kind beside the turn that is learned",
			`{"messages": [{"role": "user", "content": "2?"}, {"role": "assistant", "content": "so"}], "answer": [2], "solution": {}}`,
			Sample{Name: "record 1", Messages: []chat.Message{{Role: "user", Text: "2?"}}, Reference: "so"},
		},
		{
			"TRL's columns: a prompt and its solution",
			`{"prompt": [{"role": "user", "content": "2 + 3?"}], "solution": "$5$"}`,
			Sample{Name: "record 1", Messages: []chat.Message{{Role: "user", Text: "2 + 3?"}}, Reference: "$5$"},
		},
		{
			"columns of other forms are null",
			`{"messages": null, "chosen": null, "conversations": [{"from": "human", "value": "Why?"}, {"from": "gpt", "value": "so"}], "prompt": null}`,
			Sample{Name: "record 1", Messages: []chat.Message{{Role: "user", Text: "Why?"}}, Reference: "so"},
		},
		{
			"columns of other forms are null beside TRL's",
			`{"messages": null, "chosen": null, "conversations": null, "prompt": "Why?", "completion": "so"}`,
			Sample{Name: "record 1", Messages: []chat.Message{{Role: "user", Text: "Why?"}}, Reference: "so"},
		},
		{
			"recorded completions and meta",
			`{"conversations": [{"from": "human", "value": "Why?"}], "completions": [{"text": "so", "reward": 0.5}, {"text": ` +
				`"", "reward": 0}], "meta": {"k": [1]}}`,
			Sample{Name: "record 1", Messages: []chat.Message{{Role: "user", Text: "Why?"}}, Completions: []Recorded{{"so", 0.5}, {"", 0}},
				Meta: json.RawMessage(`{"k": [1]}`)},
		},
		{
			"messages: parts without a path take the lists' entries",
			`{"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "image", "image": "a.png"}, {"type": ` +
				`"text", "text": "?"}]}, {"role": "assistant", "content": "ok"}], "images": ["b.png"]}`,
			Sample{Name: "record 1", Messages: []chat.Message{user(image("b.png"), image("a.png"), words("?"))}, Reference: "ok"},
		},
		{
			"a folder of frames in natural order, thinned to the meta's count",
			`{"video": "f", "meta": {"fps": 4, "frames": 2}, "conversations": [{"from": "human", "value": "<video>?"}]}`,
			Sample{
				Name: "record 1", Meta: json.RawMessage(`{"fps": 4, "frames": 2}`),
				Messages: []chat.Message{user(chat.Part{Type: "video", FPS: 4, Frames: []string{at("f/frame_1.png"),
					at("f/frame_10.png")}}, words("?"))},
			},
		},
		{
			"a list of image files is the frames of one video, others are videos",
			`{"video": ["a.png", "b.png"], "conversations": [{"from": "human", "value": "<video>"}]}`,
			Sample{Name: "record 1", Messages: []chat.Message{user(chat.Part{Type: "video", Frames: []string{at("a.png"), at("b.png")}})}},
		},
		{
			"several videos, each in its own form",
			`{"videos": ["clip.mp4", ["a.png"], {"frames": ["b.png"], "fps": 1}], "conversations": [{"from": "human", ` +
				`"value": "<video><video><video>"}]}`,
			Sample{Name: "record 1", Messages: []chat.Message{user(chat.Part{Type: "video", Path: at("clip.mp4"), FPS: 2, MinFrames: 4,
				MaxFrames: 768}, chat.Part{Type: "video", Frames: []string{at("a.png")}},
				chat.Part{Type: "video", Frames: []string{at("b.png")}, FPS: 1})}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := one(t, dir, tc.json)
			if err != nil {
				t.Fatal(err)
			}
			tc.want.Root = dir
			if !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got  %+v\nwant %+v", got, tc.want)
			}
		})
	}
}

func TestErrorsNameRecordAndField(t *testing.T) {
	dir := write(t, map[string]string{"a.png": "", "b.png": "", "f/1.png": ""})
	talk := `"conversations": [{"from": "human", "value": "<image>"}, {"from": "gpt", "value": "x"}]`
	for _, tc := range []struct{ name, json, want string }{
		{"missing file", `[{"id": "q", "image": "no.png", ` + talk + `}]`, ":record 1 (id q): no file "},
		{"tag without a file", `[{"id": "q", ` + talk + `}]`, ":record 1 (id q): conversations[0]: the 1st <image> tag has " +
			"no file: the record names 0 in image or images"},
		{"file without a tag", `[{"image": ["a.png", "b.png"], ` + talk + `}]`, ":record 1: 2 images for 1 <image> tags: " +
			"every image wants a tag in a user turn"},
		{"unknown speaker", `[{"conversations": [{"from": "humen", "value": "x"}]}]`, `conversations[0]: from: unknown ` +
			`speaker "humen" (did you mean human?)`},
		{"no value", `[{"conversations": [{"from": "human"}]}]`, "conversations[0]: no value: want a text"},
		{"no turns", `[{"conversation": []}]`, "no turns: want conversations (from, value), messages (role, content) or prompt"},
		{"empty completion", `[{"conversations": [{"from": "human", "value": "x"}, {"from": "gpt", "value": " "}]}]`,
			"the last assistant turn is empty"},
		{"nobody asks", `[{"conversations": [{"from": "gpt", "value": "x"}]}]`, "no user turn before the completion"},
		{"reward that overflows a mean", `[{"conversations": [{"from": "human", "value": "x"}], "completions": [{"text": ` +
			`"a", "reward": -1e308}]}]`,
			"completions[0]: reward = -1e+308, want a number within ±1e+30"},
		{"reward missing", `[{"conversations": [{"from": "human", "value": "x"}], "completions": [{"text": "a"}]}]`,
			`completions[0]: want {"text": …, "reward": a number}`},
		{"wrong type", `[{"conversations": [{"from": "human", "value": 3}]}]`, "conversations.value: got a JSON number, want a text"},
		{"a list as the answer", `[{"prompt": "x", "answer": ["a", "b"]}]`, "answer: got a list or an object, want a text or a number"},
		{"two columns of answers", `[{"prompt": "x", "completion": "a", "response": "b"}]`, "both completion and response: want one of them$"},
		{"no answer of an annotator", `[{"prompt": "x", "answers": ["a", null]}]`, `answers[1]: want a text or {"answer": text}`},
		{"second record", `[{"id": 1, "conversations": [{"from": "human", "value": "x"}]}, {"id": 2}]`, ":record 2 (id 2): no turns"},
		{"web address", `[{"image": "https://x/a.png", ` + talk + `}]`, "image: https://x/a.png is an address: want a file on disk"},
		{"fewer frames than meta says", `[{"video": "f", "meta": {"num_frames": 3}, "conversations": [{"from": "human", ` +
			`"value": "<video>"}]}]`, "meta.num_frames says 3 frames, the 1st video has 1 files"},
		{"broken JSON inside", `[{"id": "q", "conversations": [}]`, "record 1: byte 31: got '}', want ']' first"},
		{"open record", `[{"id": "q`, "record 1: the file ends within the record"},
		{"bad token inside", `[{"id": "q", "conversations": nul}]`, ":record 1 (id q): byte 33: invalid character"},
		{"Latin-1", "[{},\n{\"id\": \"caf\xe9\"}]", `:2: record 2: not UTF-8: save the file in that encoding`},
		{"no comma", `[{} {}]`, `record 2: byte 4: got '{', want a comma or the closing ]`},
		{"open array", `[{}`, "the file ends within its array: want ]"},
		{"text behind", `[{}] x`, `byte 5: 'x' after the array`},
		{"no object", `[1]`, `byte 1: got '1', want {`},
		{"empty", `[]`, "holds no record"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := one(t, dir, tc.json)
			if err == nil || !strings.Contains(err.Error()+"$", tc.want) || !strings.HasPrefix(err.Error(), dir) { // $: its end
				t.Errorf("got  %v\nwant %s…%s", err, dir, tc.want)
			}
		})
	}
}

// What nothing reads is named: the prompt of a record that has turns, and a completion without its prompt.
func TestColumnsThatAreNotRead(t *testing.T) {
	for content, want := range map[string]int{
		`{"messages": [{"role": "user", "content": "x"}], "prompt": "y", "completion": "z"}`:   2,
		`{"messages": [{"role": "user", "content": "x"}], "prompt": null, "completion": null}`: 0,
		`{"messages": null, "prompt": "y", "completion": "z"}`:                                 0,
		`{"conversations": [{"from": "human", "value": "x"}], "response": "z"}`:                1,
	} {
		path := filepath.Join(t.TempDir(), "x.json")
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if f, err := openFile(path, "train", DefaultOptions()); err != nil || len(f.unknown) != want {
			t.Errorf("%s: %v (%v), want %d", content, f.unknown, err, want)
		}
	}
}

// many writes n records about n/perImage images, as an array or as lines.
func many(t testing.TB, n, perImage int, lines bool) string {
	t.Helper()
	var b strings.Builder
	if !lines {
		b.WriteString("\ufeff[\n")
	}
	for i := range n {
		if i > 0 && !lines {
			b.WriteString(" ,\n")
		}
		value, err := json.Marshal(fmt.Sprintf("<image>\nquestion %d with \"quotes\", {brackets]] and a \\", i))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, `{"conversations": [{"from": "human", "value": %s}, {"from": "gpt", "value": "%d"}], "id": "r%d", `+
			`"image": "%d.png"}`, value, i, i, i/perImage)
		if lines {
			b.WriteString("\r\n\n")
		}
	}
	if !lines {
		b.WriteString("\n]\n")
	}
	path := filepath.Join(t.TempDir(), "many.json")
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSplit(t *testing.T) {
	for _, lines := range []bool{false, true} {
		path := many(t, 1000, 4, lines)
		none := 0
		opt := DefaultOptions()
		opt.Train, opt.CheckRecords, opt.SplitSeed = &path, &none, 3
		b, err := Open(opt)
		if err != nil {
			t.Fatal(err)
		}
		if b.Counts["train_samples"] != 800 || b.Counts["val_samples"] != 200 || b.Eval != nil {
			t.Errorf("lines %v: counts %v, want 800 and 200", lines, b.Counts)
		}
		side := map[string]string{}
		seen := map[int64]bool{}
		for _, set := range []*Set{b.Train, b.Val} {
			for i := range set.Len() {
				s, err := set.Sample(i)
				if err != nil {
					t.Fatal(err)
				}
				image := s.Messages[0].Parts[0].Path
				if other, ok := side[image]; ok && other != set.Name {
					t.Fatalf("%s is in %s and %s", image, other, set.Name)
				}
				side[image] = set.Name
				if s.Name != fmt.Sprintf("r%d", s.ID) || s.Reference != fmt.Sprint(s.ID) || s.ID != set.ID(i) || seen[s.ID] {
					t.Fatalf("sample %d of %s is %+v", i, set.Name, s)
				}
				seen[s.ID] = true
			}
		}
		again, err := Open(opt)
		if err != nil || again.Fingerprint != b.Fingerprint {
			t.Errorf("a second time the fingerprint differs (%v)", err)
		}
		opt.SplitSeed = 4
		if other, err := Open(opt); err != nil || other.Fingerprint == b.Fingerprint || slices.Equal(other.Val.rows, b.Val.rows) {
			t.Errorf("another split_seed gives the same split (%v)", err)
		}
		opt.SplitBy, opt.MaxSamples = "record", new(int)
		*opt.MaxSamples = 10
		if small, err := Open(opt); err != nil || small.Train.Len() != 10 || small.Val.Len() != 200 {
			t.Errorf("max_samples 10 gives %d training samples (%v)", small.Train.Len(), err)
		}
	}
}

func TestRecordsLongerThanAChunk(t *testing.T) {
	const half = 1 << 19 // of a chunk that is read at once
	long := strings.Repeat(`\\\"é`, half)
	path := filepath.Join(write(t, map[string]string{
		"long.jsonl": `{"conversations": [{"from": "human", "value": "` + long + `"}]}` + "\n" +
			`{"id": "next", "conversations": [{"from": "human", "value": "?"}]}`,
	}), "long.jsonl")
	opt := DefaultOptions()
	opt.Eval = &path
	b, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	first, err := b.Eval.Sample(0)
	if err != nil || len(first.Messages[0].Text) != half*4 {
		t.Errorf("first record: %d bytes of text, %v", len(first.Messages[0].Text), err)
	}
	if second, err := b.Eval.Sample(1); err != nil || second.Name != "next" {
		t.Errorf("second record: %+v, %v", second, err)
	}
}

func TestAChangedFileIsNoticed(t *testing.T) {
	path := many(t, 3, 1, true)
	none := 0
	opt := DefaultOptions()
	opt.Eval, opt.CheckRecords = &path, &none
	b, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(`{"id": "other"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Eval.Sample(0); err == nil || !strings.Contains(err.Error(), "changed while it was in use") {
		t.Errorf("got %v", err)
	}
}

func TestWording(t *testing.T) {
	dir := write(t, map[string]string{
		"a.png": "",
		"d.json": `[{"image": "a.png", "conversations": [{"from": "human", "value": "<image>what?"}]}, {"conversations": ` +
			`[{"from": "system", "value": "own"}, {"from": "human", "value": "why?"}]}]`,
	})
	path := filepath.Join(dir, "d.json")
	opt := DefaultOptions()
	opt.Eval, opt.System, opt.Prefix, opt.Suffix = &path, "be short", "Q: ", " A:"
	b, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"be short\n<image>Q: what? A:", "own\nQ: why? A:"} {
		s, err := b.Eval.Sample(i)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Text(); got != want {
			t.Errorf("sample %d: got %q, want %q", i, got, want)
		}
	}
}

func FuzzScan(f *testing.F) {
	f.Add([]byte(`[{"id": "a", "image": ["x"], "conversations": [{"from": "human", "value": "<image>\"\\"}]}, {}]`))
	f.Add([]byte("{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\"}]}]}\n{}\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "f.json")
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
		x, err := jsonrecords.Scan(path, func(record []byte) { picturesOf(record) })
		if err != nil {
			return
		}
		var list []json.RawMessage
		if json.Unmarshal(content, &list) == nil && len(list) != x.Len() {
			t.Fatalf("%d records, want %d", x.Len(), len(list))
		}
		for row := range x.Len() {
			raw, err := x.Read(int64(row))
			if err != nil {
				t.Fatal(err)
			}
			if list != nil && string(raw) != string(list[row]) {
				t.Fatalf("record %d is %q, want %q", row, raw, list[row])
			}
			decode(raw, "", DefaultVideoOptions())
		}
	})
}

func BenchmarkScan(b *testing.B) {
	path := many(b, 200_000, 4, false)
	info, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(info.Size())
	for b.Loop() {
		if _, err := jsonrecords.Scan(path, func(record []byte) { picturesOf(record) }); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSample(b *testing.B) {
	path := many(b, 1000, 4, false)
	none := 0
	opt := DefaultOptions()
	opt.Eval, opt.CheckRecords = &path, &none
	bundle, err := Open(opt)
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		if _, err := bundle.Eval.Sample(i % 1000); err != nil {
			b.Fatal(err)
		}
	}
}
