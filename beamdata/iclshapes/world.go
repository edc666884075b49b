package iclshapes

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"image/png"
	"os"
	"path/filepath"

	"fulcrum/internal/atomicfile"
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
	for row := range opt.Records + opt.HeldOut {
		w.asked = append(w.asked, newThing(rng.New(opt.Seed, "icl record", row)))
	}
	return w
}

func (w *World) answer(row int) string { return w.tongues[w.asked[row].village].answer(w.asked[row]) }

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
		if err := os.WriteFile(filepath.Join(dir, imageOf(row)), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	var table []float32
	for _, q := range w.asked {
		table = append(table, q.features()...)
	}
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
			r.Answers[i] = w.answer(row)
		}
		if err := e.Encode(r); err != nil {
			return err
		}
	}
	return nil
}
