package tokens

import (
	"slices"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/internal/torchx"
)

// SlottedResident is a Slotted model that can decode so with its whole state on the device.
type SlottedResident[P any] interface {
	// BeginResidentSlots is BeginSlots for such a decoding.
	BeginResidentSlots(prompts []P, all []*Sequence, places, slots int, opt *GenerateOptions) (SlotsOnDevice, error)
}

// SlotsOnDevice computes the logits of rows that begin at different times.
type SlotsOnDevice interface {
	Decoding // but First
	// Fill computes a prompt, alone, into a place.
	Fill(prompt, place int) error
	// Put begins sequences in these rows, in the memory that a recorded step reads. Their prompts are in their places.
	Put(rows []int, of []*Sequence)
	// FirstOf returns the logits [len(of), V] float32 of the sequences' first tokens.
	FirstOf(of []*Sequence) torchx.Tensor
}

// generateInSlotsOnDevice draws the tokens of all sequences. Between two looks at what has ended a row goes on behind its end; one
// that nobody waits for draws tokens of a sequence behind all others, which are not read.
func (w *Weights) generateInSlotsOnDevice(d SlotsOnDevice, q *slotQueue, all []*Sequence, opt *GenerateOptions) error {
	idle := func(slot, born int) *Sequence { return &Sequence{Index: len(all), Slot: slot, born: born} }
	rows := list.Map(q.slots, func(slot int) *Sequence { return idle(slot, 0) })
	b := w.newResidentBatch(d, append(slices.Clone(all), idle(0, 0)), rows, opt)
	if w.OnCUDA() {
		defer torchx.OnSideStream(b.ids)()
	}
	r := recorder{b: b, on: w.OnCUDA(), fresh: true}
	defer func() { r.graph.Free() }()
	var live []*Sequence
	for t := 0; ; {
		begun, err := len(live), error(nil)
		if live, err = q.refill(live, d.Fill); err != nil {
			return err
		}
		if len(live) == 0 {
			break
		}
		b.begin(d, live[begun:], t) // row i is slot i as long as any sequence waits
		if len(q.waiting) == 0 && float64(len(live)) < mostlyEnded*float64(len(b.of)) {
			b.take(b.rowsOf(live))
			r.fresh = true
		}
		if off := b.without(b.rowsOf(live)); len(off) > 0 {
			b.put(d, b.rowsOf(off), list.Map(off, func(s *Sequence) *Sequence { return idle(s.Slot, t) }))
		}
		look, last := t+endedEvery, 0
		for _, s := range live { // idle rows begin anew at each look
			end := s.born + opt.MaxNewTokens - 1
			look, last = min(look, end), max(last, end)
		}
		for ; t < look; t++ {
			r.step(nil, last-t+len(q.waiting))
		}
		going := b.going(live, t)
		if opt.Ended != nil {
			b.fill(list.Filter(live, func(s *Sequence) bool { return !slices.Contains(going, s) }))
		}
		q.release(live, going)
		live = going
	}
	b.fill(all)
	return nil
}

// rowsOf returns the rows of these sequences, in their own order.
func (b *residentBatch) rowsOf(of []*Sequence) []int {
	return list.Filter(stat.Indices(len(b.of)), func(row int) bool { return slices.Contains(of, b.of[row]) })
}

// put begins sequences in rows: where their next token's numbers stand is where their first one's do.
func (b *residentBatch) put(d SlotsOnDevice, rows []int, of []*Sequence) {
	defer torchx.Scope()()
	d.Put(rows, of)
	first := list.Map(of, func(s *Sequence) int64 { return int64(s.Index) })
	torchx.WriteRowsAt(b.at, b.w.Int64s(list.Convert[int64](rows)), b.w.Int64s(first))
	for i, row := range rows {
		b.of[row] = of[i]
	}
}

// begin gives sequences the rows of their slots and draws their first tokens at step t.
func (b *residentBatch) begin(d SlotsOnDevice, of []*Sequence, t int) {
	if len(of) == 0 {
		return
	}
	defer torchx.Scope()()
	rows := list.Map(of, func(s *Sequence) int { return s.Slot })
	b.put(d, rows, of)
	first, like := *b, b.w.params.Flat()
	first.of, first.at = of, b.w.Int64s(list.Map(of, func(s *Sequence) int64 { return int64(s.Index) }))
	first.ids, first.ended = torchx.FullLike(like, 0, torchx.Int64, len(of)), torchx.FullLike(like, 0, torchx.Bool, len(of))
	if !b.seen.Nil() {
		first.seen = b.w.marks(of, said(of, b.opt))
	}
	first.draw(d.FirstOf(of), b.opt.forcedIDs(0))
	at := b.w.Int64s(list.Convert[int64](rows))
	for i, x := range []torchx.Tensor{first.ids, first.at, first.ended, first.seen} {
		if !x.Nil() {
			torchx.WriteRowsAt([]torchx.Tensor{b.ids, b.at, b.ended, b.seen}[i], at, x)
		}
	}
	for _, s := range of {
		s.born = t
	}
}

// going returns the live sequences that have not ended after step t. sync
func (b *residentBatch) going(live []*Sequence, t int) []*Sequence {
	ended := torchx.Data[bool](b.ended)
	return list.Filter(live, func(s *Sequence) bool {
		return !ended[slices.Index(b.of, s)] && t < s.born+b.opt.MaxNewTokens-1
	})
}
