package icl

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"fulcrum/beamdata/jsonrecords"
	"fulcrum/beamdata/keycheck"
	"fulcrum/internal/digest"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/list"
	"fulcrum/internal/nearpath"
)

// line is a record as a file of data.records_icl holds it.
type line struct {
	ID       *int64   `json:"id"`
	Image    string   `json:"image"`
	Question string   `json:"question"`
	Answers  []string `json:"answers"`
	ImageID  *int64   `json:"image_id"`
	Split    string   `json:"split"` // train, or val: held out
}

const example = `{"id": 1, "image": "1.jpg", "question": "what is it?", "answers": ["a cat"]}`

// ReadingPercent is how much garbage may stand beside the records while a file is read, in percent of them: by Go's own measure, 100,
// reading would take twice the memory of what is kept.
const ReadingPercent = 25

// Load reads records, one JSON object a line or a list of them:
//
//	{"id": 1, "image": "images/1.jpg", "question": "what is it?", "answers": ["a cat", …], "image_id": 9, "split": "val"}
//
// Paths start from the file's folder. image_id and split may be left out; a record of split val is held out. All records that
// are wrong are named at once.
func Load(path string) (*Set, error) {
	defer debug.SetGCPercent(debug.SetGCPercent(ReadingPercent))
	b := newBuilder()
	b.root = filepath.Dir(path)
	keys := keycheck.New(filepath.Base(path), "record", []string{"id", "image", "question", "answers", "image_id", "split"}, nil).
		Also(map[string]string{"question_id": "id", "answer": "answers", "image_path": "image"})
	type fault struct {
		row int
		err error
	}
	var faults []fault
	row := 0
	x, err := jsonrecords.Scan(path, func(record []byte) {
		jsonrecords.Fields(record, func(key, _ []byte) { keys.See(bytes.Trim(key, `"`), func() int { return row }) })
		var l line
		err := jsonwords.Unmarshal(record, &l)
		if err == nil {
			err = b.add(l)
		}
		if err != nil {
			faults = append(faults, fault{row, err})
		}
		row++
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: no such file%s", path, nearpath.Hint(path))
	}
	if err != nil {
		return nil, err
	}
	if len(faults) == row && row > 0 { // another kind of file
		return nil, fmt.Errorf("%s:%d: %w; want one record a line, such as %s", path, x.Line(0), faults[0].err, example)
	}
	const most = 8
	named := list.Map(faults[:min(most, len(faults))], func(f fault) error {
		return fmt.Errorf("%s:%d: %w", path, x.Line(int64(f.row)), f.err)
	})
	if len(faults) > most {
		named = append(named, fmt.Errorf("%s: %d more records are wrong", path, len(faults)-most))
	}
	if err := errors.Join(named...); err != nil {
		return nil, err
	}
	if row == 0 {
		return nil, fmt.Errorf("%s holds no record: want one JSON object a line, such as %s", path, example)
	}
	b.Unknown = x.Unknown(keys)
	order := b.heldOutLast()
	b.at = func(row int) string { return fmt.Sprintf("%s:%d", path, x.Line(int64(order[row]))) }
	return b.seal(), nil
}

type builder struct {
	*Set
	root string
	rows map[int64]int // by id
}

func newBuilder() *builder {
	return &builder{Set: &Set{Records: new(Table), Counts: map[string]int{}}, rows: map[int64]int{}}
}

func (b *builder) add(l line) error {
	if l.ID == nil {
		return errors.New("no id: want a whole number")
	}
	r := Record{ID: *l.ID, Question: strings.TrimSpace(l.Question), Answers: l.Answers, HeldOut: l.Split == "val"}
	if l.Split != "" && l.Split != "train" && l.Split != "val" {
		return fmt.Errorf("id %d: split %q: want train or val", r.ID, l.Split)
	}
	if r.Question == "" {
		return fmt.Errorf("id %d: no question", r.ID)
	}
	for _, a := range r.Answers {
		if strings.TrimSpace(a) == "" {
			return fmt.Errorf("id %d: an answer is empty", r.ID)
		}
	}
	if l.Image != "" {
		if strings.HasPrefix(l.Image, "http://") || strings.HasPrefix(l.Image, "https://") {
			return fmt.Errorf("id %d: image %s is an address: want a file on disk", r.ID, l.Image)
		}
		r.Image = l.Image
		if !filepath.IsAbs(r.Image) {
			r.Image = filepath.Join(b.root, filepath.FromSlash(l.Image))
		}
		r.ImageID = -int64(b.Records.images.id(r.Image)) - 1
	}
	if l.ImageID != nil {
		r.ImageID = imageID(*l.ImageID)
	}
	return b.take(r)
}

// imageID is an image's number in a Record, where 0 means no image.
func imageID(published int64) int64 { return cmp.Or(published, math.MinInt64) }

// PublishedImage is the number of the record's image as its file has it, which may be 0.
func (r Record) PublishedImage() int64 {
	if r.ImageID == imageID(0) {
		return 0
	}
	return r.ImageID
}

// take adds a record; an id that another one has is an error.
func (b *builder) take(r Record) error {
	if before, twice := b.rows[r.ID]; twice {
		return fmt.Errorf("id %d stands twice: record %d has it too", r.ID, before+1)
	}
	b.rows[r.ID] = b.Records.Len()
	b.Records.add(r)
	return nil
}

// heldOutLast moves the records of the evaluation split behind the others, in their order, and returns where each stood.
func (b *builder) heldOutLast() (was []int) {
	b.rows = nil // they are others now
	was = append(b.Queries(false), b.Queries(true)...)
	if !slices.IsSorted(was) {
		b.Records.reorder(was)
	}
	return was
}

func (b *builder) seal() *Set {
	h := digest.New()
	for _, r := range b.Records.All() {
		image := filepath.Base(r.Image) // a folder may be moved
		fmt.Fprintf(h, "%d %q %q %q %d %t\n", r.ID, image, r.Question, r.Answers, r.ImageID, r.HeldOut)
		if len(r.Answers) == 0 {
			b.Counts["questions_without_answers"]++
		}
	}
	b.Counts["records"], b.Counts["held_out"] = b.Records.Len(), len(b.Queries(true))
	b.Digest = h.Hex()
	b.Records.seal()
	b.rows = nil
	return b.Set
}
