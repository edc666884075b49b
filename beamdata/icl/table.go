package icl

import (
	"encoding/binary"
	"iter"
	"strings"
)

// Table holds records in little memory: published sets have hundreds of thousands. Texts lie one behind the other, and a path, a short
// answer or a word that many records share stands there once.
type Table struct {
	rows    [][]tableRow // in blocks: nothing is copied when the table grows
	n       int          // of rows
	texts   arena
	answers dictionary
	words   dictionary // of the questions
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

func TableOf(records ...Record) *Table {
	t := new(Table)
	for _, r := range records {
		t.add(r)
	}
	return t
}

func (t *Table) add(r Record) {
	row := tableRow{id: r.ID, imageID: r.ImageID, heldOut: r.HeldOut, image: noImage,
		question: t.texts.put(t.words.pack(strings.Split(r.Question, " ")))}
	if r.Image != "" {
		row.image = t.images.id(r.Image)
	}
	t.append(row)
	t.answer(t.n-1, r.Answers)
}

const blockRows = 1 << 12

func (t *Table) row(i int) *tableRow { return &t.rows[i/blockRows][i%blockRows] }

func (t *Table) append(row tableRow) {
	if t.n%blockRows == 0 {
		t.rows = append(t.rows, make([]tableRow, 0, blockRows))
	}
	last := &t.rows[t.n/blockRows]
	*last = append(*last, row)
	t.n++
}

func (t *Table) answer(i int, answers []string) {
	t.row(i).answers = t.texts.put(t.answers.pack(answers))
}

func (t *Table) Len() int { return t.n }

func (t *Table) At(i int) Record {
	row := t.row(i)
	r := Record{ID: row.id, ImageID: row.imageID, HeldOut: row.heldOut, Answers: t.answers.unpack(t.texts.at(row.answers)),
		Question: strings.Join(t.words.unpack(t.texts.at(row.question)), " ")}
	if row.image != noImage {
		r.Image = t.images.words[row.image]
	}
	return r
}

// All returns the records with their rows.
func (t *Table) All() iter.Seq2[int, Record] {
	return func(yield func(int, Record) bool) {
		for i := range t.n {
			if !yield(i, t.At(i)) {
				return
			}
		}
	}
}

func (t *Table) ID(i int) int64 { return t.row(i).id }

// ImageID returns the number of a record's image.
func (t *Table) ImageID(i int) int64 { return t.row(i).imageID }

func (t *Table) Answered(i int) bool { return t.row(i).answers != 0 }

func (t *Table) reorder(from []int) {
	before := *t
	t.rows, t.n = nil, 0
	for _, i := range from {
		t.append(*before.row(i))
	}
}

// seal drops what only adding needs.
func (t *Table) seal() { t.answers.ids, t.words.ids, t.images.ids = nil, nil, nil }

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
		id, text = uint32(len(d.words)), strings.Clone(text) // a word would hold all of its question
		d.words, d.ids[text] = append(d.words, text), id
	}
	return id
}

const (
	shortText = 24      // bytes: a longer one is seldom said twice, and an entry takes as much again
	mostWords = 1 << 16 // a text that comes after so many others is seldom said twice either
)

// pack returns texts as numbers in the dictionary; what is long, or comes late, stands as it is.
func (d *dictionary) pack(texts []string) (packed []byte) {
	for _, text := range texts {
		if _, known := d.ids[text]; known || len(text) <= shortText && len(d.words) < mostWords {
			packed = binary.AppendUvarint(packed, 2*uint64(d.id(text)))
			continue
		}
		packed = append(binary.AppendUvarint(packed, 2*uint64(len(text))+1), text...)
	}
	return packed
}

func (d *dictionary) unpack(packed []byte) (texts []string) {
	for len(packed) > 0 {
		v, n := binary.Uvarint(packed)
		if packed = packed[n:]; v%2 == 0 {
			texts = append(texts, d.words[v/2])
			continue
		}
		texts, packed = append(texts, string(packed[:v/2])), packed[v/2:]
	}
	return texts
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
