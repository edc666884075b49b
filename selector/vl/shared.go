package vl

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
	"fulcrum/selector/vl/pixels"
	"fulcrum/selector/vl/processor"
)

// Shared is a frozen model that is asked about prompts which begin alike, such as those with the same demonstrations: what
// several sequences begin with, pictures included, is computed once, and the last layer only where a token is predicted. The
// numbers are those of separate sequences up to rounding: the matrix products have other shapes.
type Shared struct{ *Model }

// sequence is a prompt with a completion behind it.
type sequence struct {
	packed
	next    int     // position behind the last row
	answer  int     // rows at the end that predict a token
	symbols []int64 // [rows] equal symbols are equal rows
}

// trunk is a number of rows that some sequences begin with.
type trunk struct {
	rows int
	of   []int // sequences
}

// LogProbs is tokens.LogProbs, some thousand rows at a time.
func (s Shared) LogProbs(groups []Group) ([][][]float64, error) {
	size := func(g Group) (p *processor.Prompt, rows int) {
		for _, c := range g.Completions {
			rows += len(g.Prompt.IDs) + len(c)
		}
		return g.Prompt, rows
	}
	return inParts(s, groups, size, func(part []Group) ([][][]float64, error) {
		return tokens.LogProbs[*processor.Prompt](s, part)
	})
}

// Generate answers each prompt once, some thousand rows at a time.
func (s Shared) Generate(prompts []*processor.Prompt, opt GenerateOptions) ([]Completion, error) {
	size := func(p *processor.Prompt) (*processor.Prompt, int) { return p, len(p.IDs) + opt.MaxNewTokens }
	return inParts(s, prompts, size, func(part []*processor.Prompt) ([]Completion, error) {
		answers, err := tokens.Generate(s.stepwise(), part, 1, opt)
		return list.Map(answers, func(of []Completion) Completion { return of[0] }), err
	})
}

// stepwise is what tokens.Generate sees: not Model's ways to decode on the device and in slots, which share nothing.
func (s Shared) stepwise() tokens.Model[*processor.Prompt] {
	return struct {
		tokens.Model[*processor.Prompt]
	}{s}
}

// inParts hands all to work in parts of at most prefillRows rows, what begins alike together, and returns the results in
// the order of all.
func inParts[T, R any](s Shared, all []T, size func(T) (*processor.Prompt, int), work func([]T) ([]R, error)) ([]R, error) {
	order, symbols := make([]int, len(all)), make([][]int64, len(all))
	for i := range order {
		p, _ := size(all[i])
		order[i], symbols[i] = i, s.symbols(p)
	}
	slices.SortStableFunc(order, func(a, b int) int { return slices.Compare(symbols[a], symbols[b]) })
	out := make([]R, len(all))
	for from := 0; from < len(order); {
		to, rows, part := from, 0, []T(nil)
		for ; to < len(order); to++ {
			_, n := size(all[order[to]])
			if to > from {
				n -= list.Common(symbols[order[to-1]], symbols[order[to]])
			}
			if rows += n; rows > prefillRows && to > from {
				break
			}
			part = append(part, all[order[to]])
		}
		found, err := work(part)
		if err != nil {
			return nil, err
		}
		for i, r := range found {
			out[order[from+i]] = r
		}
		from = to
	}
	return out, nil
}

// symbols returns one number a row of a prompt: a token's id, or what stands for its picture.
func (m *Model) symbols(p *processor.Prompt) []int64 {
	out := slices.Clone(p.IDs)
	images, videos := p.Images, p.Videos
	for i := 0; i < len(out) && m.cfg.Vision != nil; i++ {
		var of *[]pixels.Patches
		switch p.IDs[i] {
		case m.cfg.ImageToken:
			of = &images
		case m.cfg.VideoToken:
			of = &videos
		}
		if of == nil || len(*of) == 0 { // packPrompt says what is wrong with such a prompt
			continue
		}
		picture := (*of)[0]
		*of = (*of)[1:]
		h := fnv.New64a()
		fmt.Fprint(h, cmp.Or(picture.Key, fmt.Sprintf("%p", picture.Data)), " ", picture.SecondsPerGrid)
		n := min(picture.Rows/m.cfg.Vision.Cell(), len(out)-i)
		for k := range n {
			out[i+k] = -int64(h.Sum64()>>2) - 1
		}
		i += max(n, 1) - 1
	}
	return out
}

// sequence lays a prompt and its completion out, without the last token, which predicts nothing.
func (m *Model) sequence(p *processor.Prompt, completion []int64) (sequence, error) {
	out := sequence{answer: max(len(completion), 1)}
	at, err := m.packPrompt(&out.packed, p)
	if err == nil {
		err = m.Known(completion, "")
	}
	if err == nil {
		err = m.inWindow(len(p.IDs) + len(completion))
	}
	if err != nil {
		return out, err
	}
	rest := completion[:max(len(completion)-1, 0)]
	for k := range rest {
		out.places = append(out.places, position{at.next + k, at.next + k, at.next + k})
	}
	out.ids, out.next = append(out.ids, rest...), at.next+len(rest)
	out.symbols = append(m.symbols(p), rest...)
	return out, nil
}

// trunks says what is computed once: of sequences that begin alike, the rows that spare the most.
func trunks(all []sequence) []trunk {
	order := stat.Indices(len(all))
	slices.SortStableFunc(order, func(a, b int) int { return slices.Compare(all[a].symbols, all[b].symbols) })
	alike := make([]int, len(all)) // rows in common with the one before; those that predict are each sequence's own
	for k := 1; k < len(order); k++ {
		a, b := all[order[k-1]], all[order[k]]
		alike[k] = min(list.Common(a.symbols, b.symbols), len(a.symbols)-a.answer, len(b.symbols)-b.answer)
	}
	_, out := split(order, alike)
	return out
}

// split compares one trunk for all of order with the best of its parts: those that have more in common.
func split(order, alike []int) (spared int, out []trunk) {
	if len(order) == 1 {
		return 0, []trunk{{0, order}}
	}
	least := slices.Min(alike[1:])
	from := 0
	for k := 1; k <= len(order); k++ {
		if k == len(order) || alike[k] == least {
			n, parts := split(order[from:k], alike[from:k])
			spared, out, from = spared+n, append(out, parts...), k
		}
	}
	if whole := least * (len(order) - 1); whole > spared {
		return whole, []trunk{{least, order}}
	}
	return spared, out
}

// lane is where a sequence's keys lie: those of its trunk, its own, and the position behind them.
type lane struct {
	trunk, own place
	next       int
}

// lay puts sequences together, what they begin with once, and leaves room for so many keys behind each. The last layer
// computes the rows that predict, in the order of all.
func (m *Model) lay(all []sequence, room int) (out *packed, at []int64, lanes []lane) {
	out, lanes = &packed{}, make([]lane, len(all))
	tail := make([]torchx.Span, len(all))
	keys := 0
	add := func(s *sequence, from, to int) place { // appends rows of s
		first := len(out.ids)
		out.ids, out.places = append(out.ids, s.ids[from:to]...), append(out.places, s.places[from:to]...)
		i, row := 0, 0
		for _, picture := range s.pictures {
			row = int(s.mediaAt[i])
			n := picture.Rows / m.cfg.Vision.Cell()
			if row >= from && row < to {
				out.pictures = append(out.pictures, picture)
				for k := range n {
					out.mediaAt = append(out.mediaAt, int64(first+row-from+k))
				}
			}
			i += n
		}
		for k := range to - from {
			at = append(at, int64(keys+k))
		}
		keys += to - from
		return place{first: keys - (to - from), n: to - from}
	}
	for _, t := range trunks(all) {
		var shared place
		if t.rows > 0 {
			q := len(out.ids)
			shared = add(&all[t.of[0]], 0, t.rows)
			out.spans = append(out.spans, torchx.Span{Q: q, QLen: t.rows, Own: shared.first, OwnLen: t.rows, Causal: true})
		}
		for _, i := range t.of {
			s, q := &all[i], len(out.ids)
			own := add(s, t.rows, len(s.ids))
			span := torchx.Span{Q: q, QLen: own.n, Prefix: shared.first, PrefixLen: shared.n, Own: own.first, OwnLen: own.n, Causal: true}
			out.spans = append(out.spans, span)
			lanes[i] = lane{shared, own, s.next}
			span.Q, span.QLen = q+own.n-s.answer, s.answer
			tail[i] = span
			keys += room
		}
	}
	out.tail = &lastRows{}
	for _, span := range tail {
		for k := range span.QLen {
			out.tail.rows = append(out.tail.rows, int64(span.Q+k))
		}
		span.Q = len(out.tail.rows) - span.QLen
		out.tail.spans = append(out.tail.spans, span)
	}
	return out, at, lanes
}

// Hidden is Model.Hidden: rows [n, H] that predict the tokens of the completions, and these.
func (s Shared) Hidden(groups []Group, p *lora.Pass) (hidden torchx.Tensor, targets []int64, err error) {
	var all []sequence
	for i, g := range groups {
		for j, ids := range g.Completions {
			if len(ids) == 0 {
				continue
			}
			one, err := s.sequence(g.Prompt, ids)
			if err != nil {
				return hidden, nil, fmt.Errorf("prompt %d, completion %d: %w", i, j, err)
			}
			all, targets = append(all, one), append(targets, ids...)
		}
	}
	if len(all) == 0 {
		return hidden, nil, nil
	}
	in, _, _ := s.lay(all, 0)
	s.fillMedia(in, p)
	return s.forward(&in.rows, p), targets, nil
}

// Begin computes the prompts' keys and values; shared beginnings once.
func (s Shared) Begin(prompts []*processor.Prompt, all []*tokens.Sequence, opt *GenerateOptions) (tokens.Step, error) {
	if len(all) != len(prompts) {
		return s.Model.Begin(prompts, all, opt)
	}
	s.settle(prompts, all, opt)
	seqs := make([]sequence, len(prompts))
	for i, p := range prompts {
		var err error
		if seqs[i], err = s.sequence(p, nil); err == nil {
			err = s.inWindow(len(p.IDs) + opt.MaxNewTokens)
		}
		if err != nil {
			return nil, fmt.Errorf("prompt %d: %w", i, err)
		}
	}
	in, at, lanes := s.lay(seqs, opt.MaxNewTokens)
	d := &decoding{m: s.Model, lanes: lanes, cache: s.newCache(len(at) + len(all)*opt.MaxNewTokens)}
	d.cache.At, in.cache = s.Int64s(at), d.cache
	s.fillMedia(in, &lora.Pass{})
	d.first = s.Logits(s.forward(&in.rows, &lora.Pass{}))
	return d.step, nil
}

// fillMedia computes the vectors of the rows' pictures, many in one pass: one alone leaves a GPU idle.
func (s Shared) fillMedia(in *packed, p *lora.Pass) {
	if s.tunesVision || len(in.pictures) == 0 {
		s.Model.fillMedia(in, p)
		return
	}
	in.media = torchx.Cat(0, s.remembered(in.pictures, p, prefillRows)...)
	s.features.Trim()
}
