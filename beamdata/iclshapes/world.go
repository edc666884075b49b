// Package iclshapes is built-in data on which demonstrations and their pictures matter. A picture shows one object on a village's
// ground; the question asks for its colour, and the answer is a made-up word. Three tongues, of three villages each, have the same
// words and turn them round: red is dax in one, wug in another. So a demonstration's text alone tells nothing, only one from a village
// of the query's tongue tells the answer, with its picture, and which villages share a tongue has to be found out.
//
//	w := iclshapes.NewWorld(beamdata.DefaultICLShapesOptions()) // records of nine villages
//	err := w.Write(dir)                                 // records, pictures, annotations, features
//	b := iclshapes.Episodes(beamdata.DefaultICLShapesOptions()) // what a small model learns to use demonstrations from
//
// The features of a scene serve as embeddings. Their cosine counts colour and place too, on which no demonstration's worth depends.
package iclshapes

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"slices"

	"fulcrum/beamdata"
	"fulcrum/beamdata/conversation"
	"fulcrum/internal/atomicfile"
	"fulcrum/internal/list"
	"fulcrum/internal/rng"
	"fulcrum/internal/tensorfile"
)

// World is a set of records of villages, the held-out ones last. A record's row is its id.
type World struct {
	opt     Options
	tongues [villages]tongue // each is spoken in three villages
	asked   []thing
}

func NewWorld(opt Options) *World {
	w := &World{opt: opt}
	for v, k := range rng.New(opt.Seed, "icl world").Perm(villages) {
		w.tongues[v] = tongue(k % kinds)
	}
	w.asked = list.Make(opt.Records+opt.HeldOut, func(row int) thing { return newThing(rng.New(opt.Seed, "icl record", row)) })
	return w
}

// annotators give one answer each, all the same.
const annotators = 10

// Names of the files that Write makes.
const (
	RecordsFile  = "records.jsonl"        // data.records_icl
	FeaturesFile = "features.safetensors" // data.embeddings [records, D]
)

// Write makes the files of the world in a folder: records and pictures as task=beams and task=infer read them, and the scenes'
// features as their embeddings.
func (w *World) Write(dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, "images"), 0o755); err != nil {
		return err
	}
	for row, q := range w.asked {
		var b bytes.Buffer
		if err := png.Encode(&b, q.scene.Image()); err != nil {
			return err
		}
		path := filepath.Join(dir, imageOf(row))
		if there, err := os.ReadFile(path); err == nil && bytes.Equal(there, b.Bytes()) {
			continue // another job, which has written it, may be reading it
		}
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	table := slices.Concat(list.Map(w.asked, thing.features)...)
	t := tensorfile.FromFloat32s("embeddings", []int{len(w.asked), len(table) / len(w.asked)}, table)
	if err := tensorfile.WriteSafetensors(filepath.Join(dir, FeaturesFile), []tensorfile.Tensor{t}, nil); err != nil {
		return err
	}
	return atomicfile.Stream(filepath.Join(dir, RecordsFile), w.writeRecords) // last: where it is, the others are
}

func imageOf(row int) string { return fmt.Sprintf("images/%d.png", row) }

func (w *World) writeRecords(out *bufio.Writer) error {
	type record struct {
		ID       int      `json:"id"`
		Image    string   `json:"image"`
		Question string   `json:"question"`
		Answers  []string `json:"answers"`
		ImageID  int      `json:"image_id"`
		Split    string   `json:"split"`
	}
	e := json.NewEncoder(out)
	for row := range w.asked {
		r := record{row, imageOf(row), asks, make([]string, annotators), row + 1, "train"}
		if row >= w.opt.Records {
			r.Split = "val"
		}
		for i := range r.Answers {
			r.Answers[i] = w.tongues[w.asked[row].village].answer(w.asked[row])
		}
		if err := e.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// kinds is how many colours there are, how many words for them, and how many tongues.
const kinds = 3

// tongue says what the words mean: a colour is called by the word so many places behind its own. Every tongue has the same words.
type tongue int

// String is a tongue's name, which no record shows: a small model learns to say and to follow it.
func (t tongue) String() string { return [kinds]string{"one", "two", "three"}[t] }

// answer is the made-up word for a thing's colour.
func (t tongue) answer(q thing) string {
	return [kinds]string{"dax", "wug", "fep"}[(q.hue+int(t))%kinds]
}

// Options is the section data.icl_shapes of the configuration.
type Options = beamdata.ICLShapesOptions

// Data makes the built-in episodes of made-up names, from which a small model learns to use demonstrations.
func Data() beamdata.Dataset {
	return beamdata.Dataset{Name: "icl_shapes", Reads: []string{"icl_shapes"},
		Conversations: func(o beamdata.Options) (*conversation.Bundle, error) { return Episodes(o.ICLShapes), nil }}
}
