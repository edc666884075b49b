package beamdata

import (
	"fmt"
	"slices"

	"fulcrum/internal/regular"
)

// Items holds questions and answers by embedding row, for reports and for the reader's accuracy.
type Items struct {
	rows []item
}

type item struct {
	split, question, answer string
	image                   int64
	counts                  []textCount // answer_counts; nil where the row is unknown
}

type textCount struct {
	text  string
	count int32
}

// Text returns "question — answer" of a row, or "" where it is unknown.
func (it *Items) Text(row int) string {
	if it == nil || row < 0 || row >= len(it.rows) || it.rows[row].question == "" {
		return ""
	}
	return it.rows[row].question + " — " + it.rows[row].answer
}

// image returns the image id of a row.
func (it *Items) image(row int) (int64, bool) {
	if it == nil || row < 0 || row >= len(it.rows) || it.rows[row].counts == nil {
		return 0, false
	}
	return it.rows[row].image, true
}

// readItems adds the lines of an items.jsonl: {"idx", "split", "image_id", "question", "answer",
// "answer_counts"}, other keys ignored. rows bounds idx: lines beyond the table are skipped.
func (it *Items) readItems(path string, rows int) error {
	f, err := regular.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	s := newScanner(f)
	for s.peek() != 0 {
		idx := int64(-1)
		var x item
		if err := s.object(func(key []byte) error {
			var err error
			switch string(key) {
			case "idx":
				idx, err = s.integer()
			case "image_id":
				x.image, err = s.integer()
			case "split":
				x.split, err = s.string()
			case "question":
				x.question, err = s.string()
			case "answer":
				x.answer, err = s.string()
			case "answer_counts":
				x.counts = []textCount{}
				err = s.object(func(key []byte) error {
					name := string(key)
					n, err := s.integer()
					x.counts = append(x.counts, textCount{name, int32(n)})
					return err
				})
			default:
				err = s.skip()
			}
			return err
		}); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if idx < 0 {
			return fmt.Errorf("%s: %w", path, s.errorf("an item without idx"))
		}
		if idx >= int64(rows) {
			continue
		}
		if int(idx) >= len(it.rows) {
			it.rows = slices.Grow(it.rows, int(idx)+1-len(it.rows))[:idx+1]
		}
		it.rows[idx] = x
	}
	return s.ioErr
}

// string reads a string and copies it.
func (s *scanner) string() (string, error) {
	b, err := s.text()
	return string(b), err
}
