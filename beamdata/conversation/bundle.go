package conversation

import (
	"cmp"
	"fmt"

	"fulcrum/beamdata/keycheck"
	"fulcrum/internal/digest"
)

// Bundle is everything a run of a token policy reads. Sets that the data does not give are nil.
type Bundle struct {
	Name      string
	Synthetic bool
	Notice    string // one plain sentence about what the data is

	Train *Set
	Demos *Set // what sft imitates; nil: Train's targets
	Val   *Set // held out from training; chooses checkpoints
	Eval  *Set // held out from every choice

	EvalName    string         // "eval", "dev"
	Counts      map[string]int // sizes
	Fingerprint string         // over all sets and so over the split

	Unknown   []keycheck.Unknown // keys that records hold and nothing reads
	Skipped   map[string]int     // what was left out while reading, by reason
	SkippedAt map[string]string  // and where the first of them stands
}

// Limit keeps the first so many training samples, and has sft imitate the first so many of Demos, else of Train; nil = all.
func (b *Bundle) Limit(samples, demos *int) {
	if samples != nil {
		b.Train = b.Train.First(*samples)
	}
	if demos != nil {
		b.Demos = cmp.Or(b.Demos, b.Train).First(*demos)
	}
}

// Seal drops empty sets, fills in sizes and fingerprint, and returns the bundle.
func (b *Bundle) Seal() *Bundle {
	b.Counts = map[string]int{}
	h := digest.New()
	for _, part := range []struct {
		name string
		set  **Set
	}{{"train", &b.Train}, {"demo", &b.Demos}, {"val", &b.Val}, {"eval", &b.Eval}} {
		if (*part.set).Len() == 0 {
			*part.set = nil
			continue
		}
		b.Counts[part.name+"_samples"] = (*part.set).Len()
		fmt.Fprintln(h, part.name, (*part.set).Fingerprint())
	}
	b.Fingerprint = h.Hex()
	return b
}
