//go:build !core

package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"fulcrum/beamdata/audit"
	"fulcrum/beamdata/icl"
	"fulcrum/experiments/job"
	"fulcrum/experiments/lvlm/store"
	"fulcrum/internal/digest"
	"fulcrum/internal/hostmem"
	"fulcrum/internal/list"
	"fulcrum/internal/option"
	"fulcrum/internal/parallel"
	"fulcrum/internal/regular"
	"fulcrum/internal/stdout"
	"fulcrum/selector/clip"
	"fulcrum/selector/vl/pixels"
)

// EmbedOptions configures task=embed.
type EmbedOptions struct {
	// records, or the folder of OK-VQA's or VQAv2's published files; null = data.records_icl, or data=vqa or data=captions with data.root=DIR
	In *string `koanf:"in"`
	// file to write, by its ending: .safetensors, .npy or .pt; null = embeddings.safetensors in the run folder
	Out *string `koanf:"out"`
	// what is encoded: image, text (the question), or both, one after the other in a row
	Modality string `koanf:"modality" enum:"image,text,both"`
}

// Validate refuses an ending that is no table's.
func (o EmbedOptions) Validate() error {
	endings := []string{".safetensors", ".npy", ".pt"}
	return option.Want(o.Out == nil || slices.Contains(endings, filepath.Ext(*o.Out)), "out", "want a file that ends in %s",
		strings.Join(endings, ", "))
}

func embedTask() job.Task {
	return job.Task{Run: embed, Saves: true, Sections: []string{"encoder"}, Reads: recordKeys(), Options: &EmbedOptions{Modality: "image"},
		On: func(c *job.Config) string { return embedOf(c).Modality + " by " + *encoderOf(c).Path }}
}

func embedOf(c *job.Config) *EmbedOptions { return job.Own[EmbedOptions](c, "embed") }

func encoderOf(c *job.Config) *clip.Options { return job.Own[clip.Options](c, "encoder") }

// embed runs task=embed: one unit vector a record, in the order of the records. Every picture and every question is encoded
// once, however many records share it. What is done is kept beside the output, so that a task that was killed goes on there.
func embed(ctx context.Context, j *job.Job) error {
	e := &embedding{job: j, out: option.Or(embedOf(j.Config).Out, filepath.Join(j.Dir, "embeddings.safetensors"))}
	if err := j.MapTorch(e.read); err != nil {
		return err
	}
	if err := e.open(j); err != nil {
		return err
	}
	defer e.encoder.Free()
	if err := e.check(ctx); err != nil {
		return err
	}
	if j.Config.DryRun {
		j.Logf("dry_run: the encoder loads, every image file is there; nothing was encoded")
		return nil
	}
	j.Begun = true
	j.Holder.Heed()
	if e.upToDate() {
		stdout.Printf("embeddings: %s is there already, by the same encoder from the same records\n", e.out)
		return nil
	}
	rows, err := e.encode(ctx)
	if err != nil {
		return err
	}
	table := e.table(rows)
	if err := writeTable(e.out, table, e.about); err != nil {
		return err
	}
	stdout.Printf("embeddings: %d records, %d numbers each → %s\n", e.set.Records.Len(), table.Shape[1], e.out)
	if err := e.nameTwins(ctx, rows); err != nil {
		return err
	}
	return os.RemoveAll(e.partPath())
}

// embedding is one task=embed.
type embedding struct {
	job     *job.Job
	out     string
	set     *icl.Set
	encoder textEncoder
	clip    *clip.Encoder  // the same where it sees pictures
	dim     int            // of a vector
	digest  string         // of the encoder
	items   []embedItem    // pictures, then questions, each once, in the order of the records
	at      map[string]int // where an item is, by kind and value
	about   map[string]string
}

// embedItem is a picture's file or a question.
type embedItem struct {
	picture bool
	value   string
	row     int // the first record that has it
}

func (i embedItem) key() string {
	if i.picture {
		return "image " + i.value
	}
	return "text " + i.value
}

func (e *embedding) partPath() string { return e.out + ".part" }

func (e *embedding) read() (err error) {
	o := embedOf(e.job.Config)
	inputs := map[string]*string{"embed.in": o.In, "data.records_icl": e.job.Config.Data.RecordsICL}
	if e.set, err = openRecords(e.job, o.In); err != nil {
		return err
	}
	if err := PrepareOut("embed.out", e.out, inputs, e.job.Config.DryRun); err != nil {
		return err
	}
	for _, f := range e.set.Overlap() {
		if f.Mild {
			e.job.Logf("data: %s", f.Message)
		} else {
			e.job.Log.Warnf("data: %s", f.Message)
		}
	}
	e.at = map[string]int{}
	add := func(item embedItem) {
		if _, ok := e.at[item.key()]; !ok {
			e.at[item.key()] = len(e.items)
			e.items = append(e.items, item)
		}
	}
	for row, r := range e.set.Records.All() {
		if o.Modality == "text" {
			break
		}
		if r.Image == "" {
			return fmt.Errorf("%s: no image: embed.modality=%s needs one", e.set.At(row), o.Modality)
		}
		add(embedItem{true, r.Image, row})
	}
	for row, r := range e.set.Records.All() {
		if o.Modality != "image" {
			add(embedItem{false, r.Question, row})
		}
	}
	return nil
}

// check looks at every file before the first is encoded, and says what is cut.
func (e *embedding) check(ctx context.Context) error {
	faults, contents := make([]error, len(e.items)), make([]string, len(e.items))
	err := parallel.Each(ctx, len(e.items), 0, func(i int) error {
		if item := e.items[i]; item.picture {
			var err error
			if err = wholeImage(item.value); err == nil {
				contents[i], _, err = digest.File(item.value)
			}
			if err != nil {
				faults[i] = e.blame(item, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	broken := slices.DeleteFunc(faults, func(err error) bool { return err == nil })
	if n := len(broken); n > 0 {
		const most = 8
		if n > most {
			broken = append(broken[:most], fmt.Errorf("and %d more of %d images", n-most, len(e.items)))
		}
		return errors.Join(broken...)
	}
	cut, first := 0, ""
	for _, item := range e.items {
		if item.picture {
			continue
		}
		if _, long := e.encoder.Tokens(item.value); long {
			if cut++; cut == 1 {
				first = e.set.At(item.row)
			}
		}
	}
	if cut > 0 {
		e.job.Data.Skipped["questions_cut"] = cut
		e.job.Log.Warnf("data: %d questions are longer than the encoder reads and lose their end (the first: %s)", cut, first)
	}
	c, by := e.job.Config, encoderOf(e.job.Config)
	e.about = map[string]string{"encoder": e.digest, "records": e.set.Digest, "modality": embedOf(c).Modality, "dtype": by.DType,
		"batch": fmt.Sprint(by.Batch), "device": strings.SplitN(e.job.Device, ":", 2)[0],
		"images": digest.Of(fmt.Append(nil, contents))[:32]}
	text, err := json.Marshal(e.about)
	e.about["key"] = digest.Of(text)[:32]
	return err
}

func (e *embedding) blame(item embedItem, err error) error {
	var at string
	if !strings.Contains(err.Error(), item.value) {
		at = item.value + ": "
	}
	return fmt.Errorf("%s: image %s%w", e.set.At(item.row), at, err)
}

// wholeImage looks at the header of an image file, and decodes one that does not end as its format does.
func wholeImage(path string) error {
	if _, _, err := pixels.Size(path); err != nil {
		return err
	}
	f, err := regular.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	end := make([]byte, min(8, info.Size()))
	if _, err := f.ReadAt(end, info.Size()-int64(len(end))); err != nil {
		return err
	}
	if s := string(end); strings.HasSuffix(s, "\xff\xd9") || s == "IEND\xaeB`\x82" {
		return nil
	}
	_, err = pixels.Decode(path)
	return err
}

// embedBatch is what the encoder gets at once: pictures or texts.
type embedBatch struct {
	from, to int // items
	pictures [][]float32
	texts    [][]int64
	err      error
}

// batches cuts the items; pictures and texts are not mixed.
func (e *embedding) batches() []embedBatch {
	var out []embedBatch
	from := 0
	for size := encoderOf(e.job.Config).Batch; from < len(e.items); {
		to := from
		for to < len(e.items) && to-from < size && e.items[to].picture == e.items[from].picture {
			to++
		}
		out = append(out, embedBatch{from: from, to: to})
		from = to
	}
	return out
}

// encode returns the embeddings of all items, [items, Dim]. The next batch is read while one is computed.
func (e *embedding) encode(ctx context.Context) ([]float32, error) {
	dim := e.dim
	if err := hostmem.Need("the embeddings", 4*float64(len(e.items)+2*e.set.Records.Len())*float64(dim)); err != nil {
		return nil, err
	}
	kept, err := store.Open(e.partPath())
	if err != nil {
		return nil, err
	}
	defer kept.Close()
	p, batches, before := part{kept, e.about["key"], dim}, e.batches(), 0
	rows := make([]float32, len(e.items)*dim)
	open := batches[:0]
	for _, b := range batches {
		known, ok, err := p.rows(b)
		if err != nil {
			return nil, err
		}
		if copy(rows[b.from*dim:], known); ok {
			before += b.to - b.from
		} else {
			open = append(open, b)
		}
	}
	if before > 0 {
		e.job.Logf("embed: %d of %d are done already, in %s", before, len(e.items), e.partPath())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	read := make(chan embedBatch, 1)
	go func() {
		defer close(read)
		for _, b := range open {
			e.fill(ctx, &b)
			select {
			case read <- b:
			case <-ctx.Done():
				return
			}
		}
	}()
	begun, told, done := time.Now(), time.Now(), before
	for b := range read {
		computed, err := e.compute(b)
		if err == nil {
			err = p.keep(b, computed)
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		copy(rows[b.from*dim:], computed)
		if done += b.to - b.from; time.Since(told) > 5*time.Second {
			told = time.Now()
			rate := float64(done-before) / time.Since(begun).Seconds()
			e.job.Logf("embed: %d of %d encoded, %.3g a second, %s left", done, len(e.items), rate,
				time.Duration(float64(len(e.items)-done)/rate*1e9).Round(time.Second))
		}
	}
	return rows, ctx.Err()
}

// fill reads a batch's files.
func (e *embedding) fill(ctx context.Context, b *embedBatch) {
	items := e.items[b.from:b.to]
	if !items[0].picture {
		for _, item := range items {
			ids, _ := e.encoder.Tokens(item.value)
			b.texts = append(b.texts, ids)
		}
		return
	}
	b.pictures = make([][]float32, len(items))
	b.err = parallel.Each(ctx, len(items), 0, func(i int) (err error) {
		if b.pictures[i], err = e.clip.Picture(items[i].value); err != nil {
			err = e.blame(items[i], err)
		}
		return err
	})
}

func (e *embedding) compute(b embedBatch) ([]float32, error) {
	if b.err != nil {
		return nil, b.err
	}
	var rows []float32
	var err error
	if b.texts != nil {
		rows, err = e.encoder.Texts(b.texts)
		if err == nil && e.clip == nil { // CLIP's are of unit length
			rows, err = clip.Unit(rows, e.dim)
		}
	} else {
		rows, err = e.clip.Images(b.pictures)
	}
	if err != nil {
		return nil, fmt.Errorf("%s and %d records behind it: %w", e.set.At(e.items[b.from].row), b.to-b.from-1, err)
	}
	return rows, nil
}

// nameTwins writes down which held-out queries nearly repeat a training record: by picture, or by picture and question. Of many
// queries some are looked at. Alike questions alone mean nothing.
func (e *embedding) nameTwins(ctx context.Context, items []float32) error {
	const limit, most = 0.98, 2000
	held := e.set.Queries(true)
	if len(held) == 0 || embedOf(e.job.Config).Modality == "text" {
		return nil
	}
	var queries []int
	for i := 0; i < len(held); i += audit.Every(len(held), most) {
		queries = append(queries, held[i])
	}
	table := e.table(items)
	values, err := table.Float32s()
	if err != nil {
		return err
	}
	twins, err := e.set.Twins(ctx, icl.Vectors{Dim: table.Shape[1], Data: values}, queries, limit)
	if err != nil || len(twins) == 0 {
		return err
	}
	lines := list.Map(twins, func(t icl.Twin) map[string]any {
		return map[string]any{"id": e.set.Records.ID(t.Query), "training_id": e.set.Records.ID(t.Candidate),
			"similarity": math.Round(1e4*float64(t.Similarity)) / 1e4}
	})
	path := filepath.Join(e.job.Dir, "near_duplicates.jsonl")
	e.job.Log.Warnf("data: %d of %d held-out queries looked at have a training record of cosine %v or more (the first: id %d and %d): %s",
		len(twins), len(queries), limit, e.set.Records.ID(twins[0].Query), e.set.Records.ID(twins[0].Candidate), path)
	return writeLines(path, lines)
}
