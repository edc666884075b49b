package tokens

import (
	"slices"

	"fulcrum/internal/list"
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
	idle := func(slot int) *Sequence { return &Sequence{Index: len(all), Slot: slot} }
	b := w.newResidentBatch(d, append(slices.Clone(all), idle(0)), list.Map(q.slots, idle), opt)
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
			b.take(rowsOf(live))
			for row, s := range b.of {
				s.row = row
			}
			r.fresh = true
		}
		if off := b.without(rowsOf(live)); len(off) > 0 {
			end := torchx.Scope()
			b.put(d, rowsOf(off), list.Map(off, func(s *Sequence) *Sequence { return idle(s.Slot) }))
			end()
		}
		look, last := t+endedEvery, 0
		for _, s := range live { // idle rows begin anew at each look
			end := s.born + opt.MaxNewTokens - 1
			look, last = min(look, end), max(last, end)
		}
		for ; t < look; t++ {
			r.step(nil, last-t+len(q.waiting))
		}
		ended := torchx.Data[bool](b.ended) // sync
		over := func(s *Sequence) bool { return ended[s.row] || t >= s.born+opt.MaxNewTokens-1 }
		if opt.Ended != nil {
			b.fill(list.Filter(live, over))
		}
		going := slices.DeleteFunc(slices.Clone(live), over)
		q.release(live, going)
		live = going
	}
	b.fill(all)
	return nil
}

// rowsOf returns the rows of these sequences in ascending order.
func rowsOf(of []*Sequence) []int {
	rows := list.Map(of, func(s *Sequence) int { return s.row })
	slices.Sort(rows)
	return rows
}

// put begins sequences in rows: where their next token's numbers stand is where their first one's do. It returns both on the device.
func (b *residentBatch) put(d SlotsOnDevice, rows []int, of []*Sequence) (there, at torchx.Tensor) {
	d.Put(rows, of)
	there = b.w.Int64s(list.Convert[int64](rows))
	at = b.w.Int64s(list.Map(of, func(s *Sequence) int64 { return int64(s.Index) }))
	torchx.WriteRowsAt(b.at, there, at)
	for i, row := range rows {
		b.of[row], of[i].row = of[i], row
	}
	return there, at
}

// begin gives sequences the rows of their slots and draws their first tokens at step t.
func (b *residentBatch) begin(d SlotsOnDevice, of []*Sequence, t int) {
	if len(of) == 0 {
		return
	}
	defer torchx.Scope()()
	there, at := b.put(d, list.Map(of, func(s *Sequence) int { return s.Slot }), of)
	first, like := *b, b.w.params.Flat()
	first.of, first.at = of, at
	first.ids, first.ended = torchx.FullLike(like, 0, torchx.Int64, len(of)), torchx.FullLike(like, 0, torchx.Bool, len(of))
	if !b.seen.Nil() {
		first.seen = b.w.marks(of, said(of, b.opt))
	}
	first.draw(d.FirstOf(of), b.opt.forcedIDs(0))
	for i, x := range []torchx.Tensor{first.ids, first.at, first.ended, first.seen} {
		if !x.Nil() {
			torchx.WriteRowsAt([]torchx.Tensor{b.ids, b.at, b.ended, b.seen}[i], there, x)
		}
	}
	for _, s := range of {
		s.born = t
	}
}
