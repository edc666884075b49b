// Package icl reads what in-context learning with images starts from, questions about images with their answers, and draws
// for each question the pool of examples that may be put before it.
//
//	s, err := icl.Load("records.jsonl")                 // or icl.LoadVQA(key, folder), icl.LoadCaptions(key, folder): as published
//	pools, err := icl.Sampler{Kind: "text", Candidates: 64}.Pools(ctx, s, s.Queries(false), text, image)
//
// A record's number in the file, its row, is its global id: the row of the embedding table and the id in beam files. No tensors,
// no model and no pixels here.
package icl

import (
	"fmt"
	"strings"

	"fulcrum/beamdata/keycheck"
	"fulcrum/internal/list"
	"fulcrum/internal/stat"
)

// Record is a question about an image, and what people answered.
type Record struct {
	ID       int64    // unique in its set; question_id of the published files
	Image    string   // a file; "" = none
	Question string   //
	Answers  []string // all annotators', in their order; empty for a question without known answers
	ImageID  int64    // equal for records about one image; where the file has none, -1, -2, … by path; 0 = no image
	HeldOut  bool     // of the evaluation split: asked, and never a candidate
}

// Set is the records of a run, those of the evaluation split last.
type Set struct {
	Records *Table
	Digest  string             // SHA-256 of all that the records say
	Counts  map[string]int     // what was read and what was left out, by reason
	Unknown []keycheck.Unknown // keys that nothing reads
	// Captions says that the answers are captions of images, scored by CIDEr-D.
	Captions bool
	EmptyAt  string // where the first empty answer of an annotator stands; "" = none is empty

	at func(row int) string
}

// At says where a record stands, for messages: records.jsonl:12 (id 7).
func (s *Set) At(row int) string { return fmt.Sprintf("%s (id %d)", s.at(row), s.Records.ID(row)) }

// Queries returns the rows of one split: those that are only asked, or the others.
func (s *Set) Queries(heldOut bool) []int {
	return s.rows(func(row int) bool { return s.Records.row(row).heldOut == heldOut })
}

// Candidates returns the rows that may be examples: not held out, and with an answer to show.
func (s *Set) Candidates() []int {
	return s.rows(func(row int) bool { return !s.Records.row(row).heldOut && s.Records.Answered(row) })
}

func (s *Set) rows(of func(row int) bool) []int {
	return list.Filter(stat.Indices(s.Records.Len()), of)
}

// Notes says in sentences what of the files is not read.
func (s *Set) Notes() []string {
	notes := list.Map(s.Unknown, keycheck.Unknown.String)
	for _, reason := range []string{"questions_without_answers", "annotations_without_question"} {
		if n := s.Counts[reason]; n > 0 {
			notes = append(notes, fmt.Sprintf("%d %s", n, strings.ReplaceAll(reason, "_", " ")))
		}
	}
	if n := s.Counts["empty_answers"]; n > 0 {
		notes = append(notes, fmt.Sprintf("%d answers of annotators are empty and left out (the first: %s)", n, s.EmptyAt))
	}
	return notes
}
