package tokens

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/internal/torchx"
)

// Resident is a Model that can decode with its whole state on the device, as Generate does on CUDA. A step then copies nothing
// from or to the host, so it is recorded once as a graph and launched for every token.
type Resident[P any] interface {
	// BeginResident is Begin for such a decoding.
	BeginResident(prompts []P, all []*Sequence, opt *GenerateOptions) (Decoding, error)
}

// Decoding computes the logits of the next tokens of R rows. At first row i is sequence i of Begin's list.
type Decoding interface {
	// First returns the logits [R, V] float32 of the first tokens.
	First() torchx.Tensor
	// Next takes the last token of each row, ids [R] int64 on the device, and returns the logits [R, V] float32 of the next ones,
	// which the caller may overwrite. Between calls of Take it does the same operations on the same memory.
	Next(ids torchx.Tensor) torchx.Tensor
	// Take keeps only these rows, in this order; the tensors that it makes belong to the caller's scope.
	Take(rows []int)
}

func (w *Weights) OnCUDA() bool { return strings.HasPrefix(w.device, "cuda") }

// resident reports whether Generate decodes with the state on the device.
func (o *GenerateOptions) resident(w *Weights) bool {
	return !o.Constraints.any() && // these look at a sequence's tokens, on the host
		(o.OnDevice || w.OnCUDA())
}

const (
	endedEvery  = 16  // steps between two looks at how many rows have ended: the only time the host waits
	mostlyEnded = 0.7 // below this share of live rows the ended ones are left out
	fewSteps    = 8   // so few steps are not recorded
)

// residentBatch is the state of Generate on the device. Ended rows go on until they are left out; their draws are ignored.
type residentBatch struct {
	w    *Weights
	opt  *GenerateOptions
	next Decoding
	all  int         // sequences that the results have room for
	of   []*Sequence // [R] of each row

	ids   torchx.Tensor // [R] int64 the last tokens
	at    torchx.Tensor // [R] int64 token·all + sequence: where the next token's numbers stand in the results
	ended torchx.Tensor // [R] bool
	seen  torchx.Tensor // [R, V] bool what the repetition penalty counts; undefined without one

	uniforms   torchx.Tensor // [steps·all] float64; undefined where greedy
	eos        torchx.Tensor // [n] int64; undefined where nothing ends a row
	suppressed torchx.Tensor // [n] int64; undefined where nothing is

	drawn      torchx.Tensor // [steps·all] int64
	kept, logp torchx.Tensor // [steps·all] float64; undefined where nobody asked
}

func generateResident[P any](m Resident[P], w *Weights, prompts []P, all []*Sequence, opt *GenerateOptions) error {
	next, err := m.BeginResident(prompts, all, opt)
	if err != nil {
		return err
	}
	b := w.newResidentBatch(next, all, all, opt)
	if w.OnCUDA() {
		defer torchx.OnSideStream(b.ids)()
	}
	b.run(w.OnCUDA())
	b.fill(all)
	return nil
}

// newResidentBatch makes room for the results of all sequences, which are numbered in their order, and rows for some of them.
func (w *Weights) newResidentBatch(next Decoding, all, rows []*Sequence, opt *GenerateOptions) *residentBatch {
	n, like := len(rows), w.params.Flat()
	total := opt.MaxNewTokens * len(all)
	b := &residentBatch{w: w, opt: opt, next: next, all: len(all), of: rows, ids: torchx.FullLike(like, 0, torchx.Int64, n),
		ended: torchx.FullLike(like, 0, torchx.Bool, n), drawn: torchx.FullLike(like, 0, torchx.Int64, total)}
	b.at = w.Int64s(list.Map(rows, func(s *Sequence) int64 { return int64(s.Index) }))
	if !opt.IgnoreEOS && len(opt.EOS) > 0 {
		b.eos = w.Int64s(opt.EOS)
	}
	if len(opt.Suppressed) > 0 {
		b.suppressed = w.Int64s(opt.Suppressed)
	}
	if opt.Temperature != 0 {
		u := make([]float64, 0, total)
		for t := range opt.MaxNewTokens {
			u = append(u, list.Map(all, func(s *Sequence) float64 { return opt.uniform(s, t) })...)
		}
		b.uniforms = w.OnDevice(torchx.From(u, total))
		b.kept = torchx.FullLike(like, 0, torchx.Float64, total)
	}
	if opt.Temperature != 0 || opt.scored {
		b.logp = torchx.FullLike(like, 0, torchx.Float64, total)
	}
	if said := said(rows, opt); said != nil {
		b.seen = w.marks(rows, said)
	}
	return b
}

// marks returns [sequences, V] bool: the tokens that each list has. Sequences of a prompt have the same list.
func (w *Weights) marks(all []*Sequence, said [][]int64) torchx.Tensor {
	var marks []bool
	rows := make([]int64, len(all))
	for i, s := range all {
		if i == 0 || s.Prompt != all[i-1].Prompt {
			row := make([]bool, w.Vocab)
			for _, id := range said[i] {
				row[id] = true
			}
			marks = append(marks, row...)
		}
		rows[i] = int64(len(marks)/w.Vocab - 1)
	}
	return torchx.IndexSelect(w.OnDevice(torchx.From(marks, len(marks)/w.Vocab, w.Vocab)), 0, w.Int64s(rows))
}

// recorder makes a batch's steps, by a graph of one where it can.
type recorder struct {
	b     *residentBatch
	on    bool // steps are recorded
	fresh bool // the rows are others than those of the graph
	graph *torchx.Graph
}

// step draws one more token of each row, one of these ids; nil = any. About so many steps are to come.
func (r *recorder) step(ids []int64, left int) {
	switch {
	case ids != nil || !r.on || r.fresh && left < fewSteps:
		r.b.step(ids)
	case r.fresh:
		r.b.step(nil) // once as it is: libraries make their workspaces, kernels are compiled
		former := r.graph
		err := torchx.Try(func() error { r.graph = torchx.Capture(former, func() { r.b.step(nil) }); return nil })
		if err != nil { // an operation waits for the device, say
			r.b.w.unrecorded(err)
			r.on, r.graph = false, former
			return
		}
		former.Free()
		r.fresh = false
	default:
		r.graph.Replay()
	}
}

// run draws tokens until every row has ended or is as long as it may be.
func (b *residentBatch) run(record bool) {
	b.first()
	r := recorder{b: b, on: record, fresh: true}
	defer func() { r.graph.Free() }()
	steps := b.opt.MaxNewTokens
	for t := 1; t < steps; t++ {
		r.step(b.opt.forcedIDs(t), steps-t)
		if b.eos.Nil() || t%endedEvery != 0 {
			continue
		}
		live := b.live()
		if len(live) == 0 {
			return
		}
		if b.opt.Ended != nil {
			b.fill(b.without(live))
		}
		if float64(len(live)) < mostlyEnded*float64(len(b.of)) {
			b.take(live)
			r.fresh = true
		}
	}
}

// unrecorded counts a generation whose steps are launched one operation at a time, to the same end, and says so the first, the tenth,
// the hundredth … time.
func (w *Weights) unrecorded(why error) {
	*w.slow++
	if math.Pow10(len(fmt.Sprint(*w.slow))-1) == float64(*w.slow) && w.Warn != nil {
		w.Warn(fmt.Sprintf("%s: generation is slower than it could be (%d so far): its step cannot be recorded as a CUDA graph: %v", w.Section,
			*w.slow, why))
	}
}

// first draws the tokens that follow the prompts.
func (b *residentBatch) first() {
	defer torchx.Scope()()
	b.draw(b.next.First(), b.opt.forcedIDs(0))
}

// step draws one more token of each row, one of these ids; nil = any.
func (b *residentBatch) step(ids []int64) {
	defer torchx.Scope()()
	b.draw(b.next.Next(b.ids), ids)
}

// draw takes a token of each row and writes down what is known of it.
func (b *residentBatch) draw(logits torchx.Tensor, forcedIDs []int64) {
	o, from := b.opt, logits
	if forcedIDs != nil {
		from = b.w.OnDevice(uniformOver(len(b.of), b.w.Vocab, forcedIDs))
	}
	var u torchx.Tensor
	if !b.uniforms.Nil() {
		u = torchx.IndexSelect(b.uniforms, 0, b.at)
	}
	how := torchx.SampleOptions{Temperature: o.Temperature, TopP: o.TopP, TopK: o.TopK, RepetitionPenalty: o.RepetitionPenalty}
	d := torchx.DrawTokens(from, how, b.seen, b.suppressed, u, o.scored)
	torchx.WriteRowsAt(b.drawn, b.at, d.IDs)
	if !b.kept.Nil() {
		torchx.WriteRowsAt(b.kept, b.at, d.Kept)
	}
	if !b.logp.Nil() {
		logp := d.LogP
		if forcedIDs != nil && o.scored {
			column := torchx.Reshape(d.IDs, len(b.of), 1)
			logp = torchx.Squeeze(torchx.Gather(torchx.LogSoftmax(logits, 1), 1, column), 1)
		}
		torchx.WriteRowsAt(b.logp, b.at, logp)
	}
	if !b.eos.Nil() {
		torchx.Copy(b.ended, torchx.Maximum(b.ended, torchx.IsAny(d.IDs, b.eos)))
	}
	if !b.seen.Nil() {
		torchx.MarkSeen(b.seen, d.IDs)
	}
	torchx.Copy(b.ids, d.IDs)
	torchx.Advance(b.at, b.all)
}

// live returns the rows that have not ended. sync
func (b *residentBatch) live() []int {
	ended := torchx.Data[bool](b.ended)
	return list.Filter(stat.Indices(len(ended)), func(i int) bool { return !ended[i] })
}

func (b *residentBatch) take(rows []int) {
	index := list.Convert[int64](rows)
	of := list.Map(rows, func(r int) *Sequence { return b.of[r] })
	for _, x := range []*torchx.Tensor{&b.ids, &b.at, &b.ended, &b.seen} {
		if !x.Nil() {
			b.w.Take(x, len(b.of), index)
		}
	}
	b.of = of
	b.next.Take(rows)
}

// Take keeps some of the parts into which a tensor is cut along its first axis, in this order.
func (w *Weights) Take(x *torchx.Tensor, parts int, which []int64) {
	defer torchx.Scope()()
	all, shape := *x, x.Shape()
	shape[0] = len(which) * shape[0] / parts
	*x = torchx.Keep(torchx.Reshape(torchx.IndexSelect(torchx.Reshape(all, parts, -1), 0, w.Int64s(which)), shape...))
	all.Free()
}

// without returns the sequences of rows that are not live.
func (b *residentBatch) without(live []int) (ended []*Sequence) {
	for row, s := range b.of {
		if _, found := slices.BinarySearch(live, row); !found {
			ended = append(ended, s)
		}
	}
	return ended
}

// fill gives sequences that have no tokens yet what was drawn for them, up to the token that ended each. sync
func (b *residentBatch) fill(of []*Sequence) {
	of = list.Filter(of, func(s *Sequence) bool { return s.IDs == nil })
	if len(of) == 0 {
		return
	}
	values := torchx.Read(b.drawn, b.kept, b.logp)
	o := b.opt
	for _, s := range of {
		for t := range o.MaxNewTokens {
			k := t*b.all + s.Index
			if s.append(int64(values[0][k]), o, at(values[1], k), at(values[2], k)) {
				break
			}
		}
		if o.Ended != nil {
			o.Ended(s.Prompt, s.IDs)
		}
	}
}
