package tokens

import (
	"slices"
	"strings"

	"fulcrum/internal/stat"
	"fulcrum/internal/torchx"
)

// Slotted is a Model that can decode in a cache of fixed size: rows for as many completions as there are slots, and for as many
// prompts as there are places. Generate refills a slot whose completion has ended, so that a step costs no more memory than its
// slots do, however many completions it asks for.
type Slotted[P any] interface {
	// BeginSlots is Begin for such a decoding. No prompt is computed yet.
	BeginSlots(prompts []P, all []*Sequence, places, slots int, opt *GenerateOptions) (SlotDecoding, error)
}

// SlotDecoding computes the logits of sequences in slots.
type SlotDecoding interface {
	// Fill computes a prompt, alone, into a place.
	Fill(prompt, place int) error
	// Step is a Step of sequences of any length. Those without a token come last.
	Step(live []*Sequence) (torchx.Tensor, error)
}

// exactRows is how many rows a CPU computes at once in slots. A product of so few float32 rows adds up each of them in the same order
// whatever the others are (csrc/linear.cc), which BLAS does not. With prompts computed one by one, the number of slots changes no byte.
const exactRows = 16

// generateInSlots draws the tokens of all sequences in their order, so many at a time.
func generateInSlots[P any](m Slotted[P], w *Weights, prompts []P, all []*Sequence, opt *GenerateOptions) error {
	slots := min(*opt.Slots, len(all))
	places := min(slots, len(prompts)) // even if no two live sequences have the same prompt
	q := &slotQueue{waiting: all, slots: stat.Indices(slots), places: stat.Indices(places), left: make([]int, len(prompts)), in: map[int]int{}}
	for _, s := range all {
		q.left[s.Prompt]++
	}
	if r, ok := m.(SlottedResident[P]); ok && opt.resident(w) && len(opt.Last) == 0 {
		d, err := r.BeginResidentSlots(prompts, all, places, slots, opt)
		if err != nil {
			return err
		}
		return w.generateInSlotsOnDevice(d, q, all, opt)
	}
	d, err := m.BeginSlots(prompts, all, places, slots, opt)
	if err != nil {
		return err
	}
	atOnce := slots
	if strings.HasPrefix(w.device, "cpu") {
		atOnce = exactRows
	}
	var live []*Sequence
	for len(live)+len(q.waiting) > 0 {
		if live, err = q.refill(live, d.Fill); err != nil {
			return err
		}
		var going []*Sequence
		for part := range slices.Chunk(live, atOnce) {
			on, err := w.extend(part, opt, d.Step)
			if err != nil {
				return err
			}
			going = append(going, on...)
		}
		q.release(live, going)
		live = going
	}
	return nil
}

// slotQueue says which sequence gets which slot, and its prompt which place.
type slotQueue struct {
	waiting       []*Sequence
	slots, places []int       // free ones
	left          []int       // of each prompt, sequences that have not ended
	in            map[int]int // prompt → place
}

// refill gives free slots to waiting sequences, whose prompts it computes where they are not in a place yet.
func (q *slotQueue) refill(live []*Sequence, fill func(prompt, place int) error) ([]*Sequence, error) {
	for len(q.slots) > 0 && len(q.waiting) > 0 {
		s := q.waiting[0]
		place, filled := q.in[s.Prompt]
		if !filled {
			place, q.places = q.places[0], q.places[1:]
			q.in[s.Prompt] = place
			if err := fill(s.Prompt, place); err != nil {
				return nil, err
			}
		}
		s.Slot, s.Place, q.slots, q.waiting = q.slots[0], place, q.slots[1:], q.waiting[1:]
		live = append(live, s)
	}
	return live, nil
}

// release takes the slots of sequences that do not go on, and the places of prompts that have no other.
func (q *slotQueue) release(live, going []*Sequence) {
	for _, s := range live {
		if len(going) > 0 && going[0] == s {
			going = going[1:]
			continue
		}
		q.slots = append(q.slots, s.Slot)
		if q.left[s.Prompt]--; q.left[s.Prompt] == 0 {
			q.places = append(q.places, s.Place)
			delete(q.in, s.Prompt)
		}
	}
}
