// Package conversation reads the data of the token policies: conversations with images or video, the
// completion to learn, annotators' answers and recorded completions with rewards.
//
//	b, err := conversation.Open(opt)       // a JSON or JSONL file; or conversation.Shapes, built in
//	s, err := b.Train.Sample(i)            // decoded now: messages, reference, answers
//
// A file is scanned once for where its records lie and is otherwise left on disk: memory grows by some
// bytes a record, whatever the records hold. The package knows no tokenizer and opens no picture.
package conversation

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/beamdata/jsonrecords"
	"fulcrum/beamdata/keycheck"
	"fulcrum/internal/list"
	"fulcrum/internal/nearpath"
	"fulcrum/internal/program"
	"fulcrum/internal/stat"
)

// Open reads where the records of the files lie and splits them. The first CheckRecords of each set are decoded
// and their pictures looked up, so that mistakes show before anything is trained.
func Open(opt Options) (*Bundle, error) {
	return Files{
		Train: opt.Train, Val: opt.Val, Eval: opt.Eval, SFT: opt.SFT, Demos: opt.Demos, CheckRecords: opt.CheckRecords,
		TrainRatio: opt.TrainRatio, SplitSeed: opt.SplitSeed, MaxSamples: opt.MaxSamples,
		Open: func(path, key string) (Opened, error) {
			f, err := openFile(path, key, opt)
			if err != nil {
				return Opened{}, err
			}
			o := Opened{Source: f, Len: f.index.Len(), Unknown: f.unknown}
			if opt.SplitBy == "image" {
				o.Groups = f.groups
			}
			return o, nil
		},
	}.Bundle("conversations", "eval")
}

type file struct {
	index   *jsonrecords.Index
	holds   []holding
	groups  []int // rows of one number have a picture in common; -1 = no pictures
	unknown []keycheck.Unknown
	root    string
	wording wording
	video   VideoOptions
}

// keys are those of a record that are read, and those that the public sets carry besides.
func keys(path string) *keycheck.Keys {
	return keycheck.New(filepath.Base(path), "record",
		[]string{"id", "image", "images", "video", "videos", "conversations", "messages", "answer", "solution",
			"system", "answers", "completions", "meta"},
		[]string{"source", "dataset", "data_source", "width", "height", "question_id", "question_type", "answer_type", "image_id",
			"video_id", "split", "task",
			"type", "category", "model", "language", "title", "url", "license", "metadata", "question", "problem", "duration"}).
		Also(map[string]string{"img": "image", "imgs": "images", "image_path": "image", "image_file": "image", "picture": "image",
			"video_path": "video", "frames": "video",
			"conversation": "conversations", "turns": "conversations", "dialog": "conversations", "dialogue": "conversations",
			"message": "messages", "chat": "messages",
			"candidates": "completions", "responses": "completions", "system_prompt": "system"})
}

// hint says what may be wrong with a record that does not decode: its keys, or that it is a whole file. alone: no other
// record stands beside it.
func (f *file) hint(raw []byte, alone bool) string {
	if key, n := jsonrecords.Wrapped(raw); alone && n > 0 {
		return fmt.Sprintf(": the file is one object with its %d records under %q: want the list itself, as in "+
			"`jq %s > FILE.json`", n, key, program.Quoted("."+key, f.index.Path))
	}
	seen, has := keys(f.index.Path), map[string]bool{}
	jsonrecords.Fields(raw, func(key, _ []byte) {
		name := strings.ToLower(string(bytes.Trim(key, `"`)))
		has[name] = true
		seen.See([]byte(name), func() int { return 0 })
	})
	var hints []string
	for _, u := range seen.Unknown() {
		if u.Nearest != "" && !has[u.Nearest] && !(has["prompt"] && u.Key == "completion") {
			hints = append(hints, u.Nearest+" for "+u.Key)
		}
	}
	if !has["conversations"] && !has["messages"] && !has["prompt"] {
		for _, p := range [][2]string{{"instruction", "output"}, {"question", "answer"}, {"query", "response"}, {"input", "output"},
			{"problem", "solution"}} { // what other layouts call the two
			if has[p[0]] && has[p[1]] {
				return fmt.Sprintf(": found %s and %s: call them prompt and completion", p[0], p[1])
			}
		}
	}
	if len(hints) > 0 {
		return " (did you mean " + strings.Join(hints, ", ") + "?)"
	}
	return ""
}

// openFile scans the file of a key.
func openFile(path, key string, opt Options) (*file, error) {
	f := &file{root: cmp.Or(opt.Root, filepath.Dir(path)), wording: opt.wording(), video: opt.Video}
	groups := grouping{first: map[uint64]int{}}
	seen := keys(path)
	x, err := jsonrecords.Scan(path, func(record []byte) {
		groups.add(picturesOf(record))
		row := len(f.holds)
		f.holds = append(f.holds, holdingOf(record))
		talk, columns := false, []string{}
		jsonrecords.Fields(record, func(key, value []byte) {
			switch name := bytes.ToLower(bytes.Trim(key, `"`)); string(name) {
			case "conversations", "messages":
				talk = talk || given(bytes.TrimSpace(value))
			case "prompt", "completion", "response":
				if given(bytes.TrimSpace(value)) {
					columns = append(columns, string(name))
				}
			default:
				seen.See(name, func() int { return row })
			}
		})
		if talk || !slices.Contains(columns, "prompt") { // nothing reads them beside turns, nor an answer without its prompt
			for _, name := range columns {
				seen.See([]byte(name), func() int { return row })
			}
		}
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("data.conversations.%s: %s does not exist%s: want a JSON or JSONL file of conversations", key, path,
			nearpath.Hint(path))
	}
	if err != nil {
		return nil, err
	}
	if x.Len() == 0 {
		return nil, fmt.Errorf("%s holds no record", path)
	}
	f.index, f.groups = x, list.Map(stat.Indices(x.Len()), groups.root)
	f.unknown = x.Unknown(seen)
	return f, nil
}

// Sample decodes a record. Its number in messages counts from 1, as lines do.
func (f *file) Sample(row int64) (Sample, error) {
	raw, err := f.index.Read(row)
	if err != nil {
		return Sample{}, err
	}
	s, err := decode(raw, f.root, f.video)
	s.ID = row
	if err != nil {
		return s, fmt.Errorf("%s: %w%s", f.at(row, s.Name), err, f.hint(raw, f.index.Len() == 1))
	}
	s.Name = cmp.Or(s.Name, fmt.Sprintf("record %d", row+1))
	s.Messages = f.wording.apply(s.Messages)
	return s, nil
}

func (f *file) at(row int64, name string) string {
	record := fmt.Sprintf("record %d", row+1)
	if name == "" || name == record { // what a sample without an id is called
		return f.index.Path + ":" + record
	}
	return fmt.Sprintf("%s:%s (id %s)", f.index.Path, record, name)
}

// Fingerprint covers the file and what the options add to it.
func (f *file) Fingerprint() string {
	x := fmt.Sprintf("%s %+v", f.index.Digest, f.wording)
	if f.video != DefaultVideoOptions() {
		x += fmt.Sprintf(" %+v", f.video)
	}
	return x
}
