package icl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"fulcrum/beamdata/jsonrecords"
	"fulcrum/beamdata/keycheck"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/list"
	"fulcrum/internal/regular"
	"fulcrum/rewardutil/vqa"
)

// LoadVQA reads a folder with the files of OK-VQA or VQAv2 under the names that they are published with, in the folder itself or
// in folders right below it:
//
//	OpenEnded_mscoco_train2014_questions.json    mscoco_train2014_annotations.json    train2014/COCO_train2014_000000000009.jpg
//	v2_OpenEnded_mscoco_val2014_questions.json   v2_mscoco_val2014_annotations.json   val2014/COCO_val2014_000000000042.jpg
//
// Questions of train come first, in the order of their file; those of val follow and are held out. A folder without val is
// a set without held-out questions. Answers are the ten annotators' (OK-VQA: as stemmed by its authors, the form that it is
// scored by). key names the setting that root comes from.
func LoadVQA(key, root string) (*Set, error) {
	files, err := namesBelow(key, root)
	if err != nil {
		return nil, err
	}
	b := newBuilder()
	var sources []string // question files by split
	var starts []int     // first row of each
	for _, split := range []string{"train", "val"} {
		p, err := published(key+"="+root, files, split)
		if err != nil {
			return nil, err
		}
		if p.questions == "" {
			continue
		}
		sources, starts = append(sources, p.questions), append(starts, b.Records.Len())
		if err := b.readSplit(p, split == "val"); err != nil {
			return nil, err
		}
	}
	b.at = func(row int) string {
		k := len(starts) - 1
		for starts[k] > row {
			k--
		}
		return fmt.Sprintf("%s: question %d", sources[k], row-starts[k]+1)
	}
	return b.seal(), nil
}

// split is where one split of a published data set lies.
type split struct {
	questions, annotations string // files; annotations "" = none
	folder, name           string // images, and what their folder is called: val2014
}

// namesBelow lists files and folders of a folder and of those right below it, as paths. Folders of images are not listed.
func namesBelow(key, root string) ([]string, error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("%s=%s: %w", key, root, errors.Unwrap(err))
	}
	imageFolder := regexp.MustCompile(`^(train|val|test)\d{4}$`)
	var paths []string
	for _, e := range entries {
		path := filepath.Join(root, e.Name())
		paths = append(paths, path)
		info, err := os.Stat(path) // a link to a folder is one
		if err != nil || !info.IsDir() || imageFolder.MatchString(e.Name()) {
			continue
		}
		inner, err := os.ReadDir(path)
		if err != nil {
			return nil, err
		}
		paths = append(paths, list.Map(inner, func(e os.DirEntry) string { return filepath.Join(path, e.Name()) })...)
	}
	return paths, nil
}

// published finds the files of a split. where names the folder in errors. questions is "" where val is not there; train must be.
func published(where string, paths []string, name string) (split, error) {
	var s split
	var err error
	if s.questions, err = one(where, paths, name+" questions", questionsOf(name)); err != nil {
		return s, err
	}
	if s.questions == "" {
		if name == "val" {
			return s, nil
		}
		return s, fmt.Errorf("%s: no OpenEnded_mscoco_train2014_questions.json (OK-VQA) and no "+
			"v2_OpenEnded_mscoco_train2014_questions.json (VQAv2) there or one folder below: unpack the published files there", where)
	}
	s.name = regexp.MustCompile(name + `\d{4}`).FindString(filepath.Base(s.questions))
	wanted := strings.Replace(strings.Replace(filepath.Base(s.questions), "OpenEnded_", "", 1), "_questions", "_annotations", 1)
	if s.annotations, err = one(where, paths, name+" annotations", regexp.QuoteMeta(wanted)); err != nil {
		return s, err
	}
	if s.annotations == "" {
		return s, fmt.Errorf("%s: no %s beside %s: its answers are there", where, wanted, s.questions)
	}
	s.folder, err = pictures(where, paths, s.name)
	return s, err
}

func questionsOf(split string) string {
	return `(v2_)?OpenEnded_mscoco_` + split + `\d{4}_questions\.json`
}

// one returns the file whose name matches, "" where there is none; several are an error.
func one(where string, paths []string, what, pattern string) (string, error) {
	match := regexp.MustCompile("^" + pattern + "$")
	found := list.Filter(paths, func(p string) bool { return match.MatchString(filepath.Base(p)) })
	if len(found) > 1 {
		return "", fmt.Errorf("%s: %d files hold the %s (%s): want the folder of one data set", where, len(found), what,
			strings.Join(found, ", "))
	}
	return strings.Join(found, ""), nil
}

// pictures returns COCO's folder of images of a name: val2014.
func pictures(where string, paths []string, name string) (string, error) {
	k := slices.IndexFunc(paths, func(p string) bool { return filepath.Base(p) == name })
	if k < 0 {
		return "", fmt.Errorf("%s: no folder %s with COCO's images there or one folder below: unpack %s.zip there, or link it",
			where, name, name)
	}
	return paths[k], nil
}

// image returns the file of a COCO image: COCO_val2014_000000000042.jpg, since 2017 000000000042.jpg.
func (s split) image(id int64) string {
	file := fmt.Sprintf("%012d.jpg", id)
	if strings.HasSuffix(s.name, "2014") || strings.HasSuffix(s.name, "2015") {
		file = "COCO_" + s.name + "_" + file
	}
	return filepath.Join(s.folder, file)
}

func (b *builder) readSplit(s split, heldOut bool) error {
	first := b.Records.Len()
	keys := keycheck.New(filepath.Base(s.questions), "question", []string{"question_id", "image_id", "question"}, nil)
	err := eachOf(s.questions, "questions", func(raw []byte, line func() int) error {
		var q struct {
			ID       *int64 `json:"question_id"`
			ImageID  *int64 `json:"image_id"`
			Question string `json:"question"`
		}
		jsonrecords.Fields(raw, func(key, _ []byte) { keys.See(bytes.Trim(key, `"`), line) })
		if err := jsonwords.Unmarshal(raw, &q); err != nil {
			return err
		}
		if q.ID == nil || q.ImageID == nil || strings.TrimSpace(q.Question) == "" {
			return fmt.Errorf("question %d: want question_id, image_id and question", b.Records.Len()-first+1)
		}
		return b.take(Record{ID: *q.ID, Image: s.image(*q.ImageID), Question: strings.TrimSpace(q.Question),
			ImageID: imageID(*q.ImageID), HeldOut: heldOut})
	})
	if err != nil {
		return err
	}
	b.Unknown = append(b.Unknown, keys.Unknown()...)
	err = eachOf(s.annotations, "annotations", func(raw []byte, line func() int) error {
		var a vqa.Annotation
		if err := jsonwords.Unmarshal(raw, &a); err != nil {
			return err
		}
		row, ok := b.rows[a.QuestionID]
		if !ok || row < first {
			b.Counts["annotations_without_question"]++
			return nil
		}
		r, answers := b.Records.At(row), []string(nil)
		if imageID(a.ImageID) != r.ImageID {
			return fmt.Errorf("question %d is about image %d here and about %d in %s", a.QuestionID, a.ImageID, r.ImageID, s.questions)
		}
		if r.Answers != nil {
			return fmt.Errorf("question %d is annotated twice", a.QuestionID)
		}
		for _, answer := range a.Answers {
			if strings.TrimSpace(answer.Answer) != "" { // nothing could be shown or scored
				answers = append(answers, answer.Answer)
				continue
			}
			if b.Counts["empty_answers"]++; b.EmptyAt == "" {
				b.EmptyAt = fmt.Sprintf("%s:%d: question %d", s.annotations, line(), a.QuestionID)
			}
		}
		b.Records.answer(row, answers)
		return nil
	})
	if err != nil {
		return err
	}
	if first == b.Records.Len() {
		return fmt.Errorf("%s holds no question", s.questions)
	}
	return nil
}

// eachOf calls visit for the objects of the list under a key of the file's one object, decoding one at a time.
func eachOf(path, key string, visit func(raw []byte, line func() int) error) error {
	f, err := regular.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	d := json.NewDecoder(f)
	line := func() int { return jsonrecords.LineAt(path, d.InputOffset()) }
	where := func(err error) error {
		if err == io.EOF {
			err = errors.New("the JSON ends in the middle of a list: is the file cut short?")
		}
		return fmt.Errorf("%s:%d: %w", path, line(), err)
	}
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return where(fmt.Errorf("want an object with a list %s", key))
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return where(err)
		}
		if name != key {
			var skip json.RawMessage
			if err := jsonwords.Decode(d, &skip); err != nil {
				return where(err)
			}
			continue
		}
		if t, err := d.Token(); err != nil || t != json.Delim('[') {
			return where(fmt.Errorf("%s: want a list", key))
		}
		for d.More() {
			var raw json.RawMessage
			if err := jsonwords.Decode(d, &raw); err != nil {
				return where(err)
			}
			if len(raw) < 2 || raw[0] != '{' {
				return where(fmt.Errorf("%s: got %.20s, want an object", key, raw))
			}
			err := jsonwords.CheckUnicode(raw)
			if err == nil {
				err = visit(raw, line)
			}
			if err != nil {
				return where(err)
			}
		}
		if _, err = d.Token(); err != nil { // what follows the list is not read
			return where(err)
		}
		return nil
	}
	return where(fmt.Errorf("no list %s", key))
}
