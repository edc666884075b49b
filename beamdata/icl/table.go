package icl

import (
	"encoding/binary"
	"iter"

	"fulcrum/internal/list"
)

// Table holds records in little memory: published sets have hundreds of thousands. Texts lie one behind the other, and a path or a short
// answer that many records share stands there once.
type Table struct {
	rows    []tableRow
	texts   arena
	answers dictionary
	images  dictionary
}

// tableRow is what is asked for often, and where the texts of a record lie.
type tableRow struct {
	id, imageID       int64
	question, answers place
	image             uint32 // in the dictionary; noImage = none
	heldOut           bool
}

const noImage = 1<<32 - 1

// TableOf returns a table of these records.
func TableOf(records ...Record) *Table {
	t := new(Table)
	for _, r := range records {
		t.add(r)
	}
	return t
}

func (t *Table) add(r Record) {
	row := tableRow{id: r.ID, imageID: r.ImageID, heldOut: r.HeldOut, image: noImage, question: t.texts.put([]byte(r.Question))}
	if r.Image != "" {
		row.image = t.images.id(r.Image)
	}
	t.rows = append(t.rows, row)
	t.answer(len(t.rows)-1, r.Answers)
}

// sharedAnswer is the length in bytes of answers that stand in the dictionary. A longer one is seldom said twice, and an entry of the
// dictionary takes as much again.
const sharedAnswer = 24

// answer sets the answers of a record.
func (t *Table) answer(i int, answers []string) {
	if t.rows[i].answers = 0; len(answers) == 0 {
		return
	}
	var packed []byte
	for _, a := range answers {
		if len(a) <= sharedAnswer {
			packed = binary.AppendUvarint(packed, 2*uint64(t.answers.id(a)))
			continue
		}
		packed = append(binary.AppendUvarint(packed, 2*uint64(len(a))+1), a...)
	}
	t.rows[i].answers = t.texts.put(packed)
}

// Len returns the number of records.
func (t *Table) Len() int { return len(t.rows) }

// At returns a record.
func (t *Table) At(i int) Record {
	row := &t.rows[i]
	r := Record{ID: row.id, ImageID: row.imageID, HeldOut: row.heldOut, Question: string(t.texts.at(row.question))}
	if row.image != noImage {
		r.Image = t.images.words[row.image]
	}
	for packed := t.texts.at(row.answers); len(packed) > 0; {
		v, n := binary.Uvarint(packed)
		if packed = packed[n:]; v%2 == 0 {
			r.Answers = append(r.Answers, t.answers.words[v/2])
			continue
		}
		r.Answers, packed = append(r.Answers, string(packed[:v/2])), packed[v/2:]
	}
	return r
}

// All returns the records with their rows.
func (t *Table) All() iter.Seq2[int, Record] {
	return func(yield func(int, Record) bool) {
		for i := range t.rows {
			if !yield(i, t.At(i)) {
				return
			}
		}
	}
}

// ID returns a record's id.
func (t *Table) ID(i int) int64 { return t.rows[i].id }

// ImageID returns the number of a record's image.
func (t *Table) ImageID(i int) int64 { return t.rows[i].imageID }

// Answered reports whether a record has answers.
func (t *Table) Answered(i int) bool { return t.rows[i].answers != 0 }

// reorder puts the rows into another order.
func (t *Table) reorder(from []int) {
	t.rows = list.Map(from, func(i int) tableRow { return t.rows[i] })
}

// seal drops what only adding needs.
func (t *Table) seal() { t.answers.ids, t.images.ids = nil, nil }

// dictionary numbers texts in the order in which they come.
type dictionary struct {
	words []string
	ids   map[string]uint32 // by text; nil: nothing is added any more
}

func (d *dictionary) id(text string) uint32 {
	if d.ids == nil {
		d.ids = map[string]uint32{}
	}
	id, known := d.ids[text]
	if !known {
		id = uint32(len(d.words))
		d.words, d.ids[text] = append(d.words, text), id
	}
	return id
}

// arena holds texts of any length, in chunks: nothing is copied when it grows.
type arena struct{ chunks [][]byte }

// place is where a text lies in an arena; 0 is that of an empty one.
type place uint64

const (
	chunkBits = 20
	lengthOf  = binary.MaxVarintLen64
)

// put keeps a text with its length before it.
func (a *arena) put(text []byte) place {
	if len(text) == 0 {
		return 0
	}
	last := len(a.chunks) - 1
	if last < 0 || cap(a.chunks[last])-len(a.chunks[last]) < lengthOf+len(text) {
		a.chunks = append(a.chunks, make([]byte, 1, max(1<<chunkBits, 1+lengthOf+len(text)))) // no text lies at 0
		last++
	}
	at := place(last)<<32 | place(len(a.chunks[last]))
	a.chunks[last] = append(binary.AppendUvarint(a.chunks[last], uint64(len(text))), text...)
	return at
}

// at returns a text, which must not be changed.
func (a *arena) at(p place) []byte {
	if p == 0 {
		return nil
	}
	packed := a.chunks[p>>32][uint32(p):]
	length, n := binary.Uvarint(packed)
	return packed[n:][:length]
}
