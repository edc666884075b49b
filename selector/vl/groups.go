package vl

import (
	"fmt"

	"fulcrum/internal/list"
	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
	"fulcrum/selector/vl/pixels"
	"fulcrum/selector/vl/processor"
)

// Group is a prompt and its completions.
type Group = tokens.Group[*processor.Prompt]

// packed are the rows of some groups and where to find them.
type packed struct {
	rows
	pictures []pixels.Patches // in the order of their placeholders' rows
	prompts  []place          // of each group
	answers  [][]place        // of each completion of each group
}

// place is where rows lie: the first one, how many, and the position that follows them.
type place struct{ first, n, next int }

// pack lays groups out as rows: each prompt once, then its completions without their last tokens, which predict nothing. A completion's
// rows see the prompt and their own predecessors. first is the number of the first prompt, for errors.
func (m *Model) pack(groups []Group, first int) (*packed, error) {
	out := &packed{}
	for i, g := range groups {
		prompt, err := m.packPrompt(out, g.Prompt)
		if err != nil {
			return nil, fmt.Errorf("prompt %d: %w", first+i, err)
		}
		out.prompts = append(out.prompts, prompt)
		var answers []place
		for j, ids := range g.Completions {
			err := m.Known(ids, "")
			if err == nil {
				err = m.inWindow(prompt.n + len(ids))
			}
			if err != nil {
				return nil, fmt.Errorf("prompt %d, completion %d: %w", first+i, j, err)
			}
			ids = ids[:max(len(ids)-1, 0)]
			at := place{len(out.ids), len(ids), prompt.next + len(ids)}
			for k := range ids {
				p := prompt.next + k
				out.places = append(out.places, position{p, p, p})
			}
			out.ids = append(out.ids, ids...)
			if len(ids) > 0 {
				out.spans = append(out.spans, torchx.Span{Q: at.first, QLen: at.n, Prefix: prompt.first, PrefixLen: prompt.n,
					Own: at.first, OwnLen: at.n, Causal: true})
			}
			answers = append(answers, at)
		}
		out.answers = append(out.answers, answers)
	}
	return out, nil
}

// packPrompt appends a prompt's rows.
func (m *Model) packPrompt(out *packed, prompt *processor.Prompt) (place, error) {
	if len(prompt.IDs) == 0 {
		return place{}, fmt.Errorf("is empty")
	}
	if err := m.Known(prompt.IDs, ""); err != nil {
		return place{}, err
	}
	if m.cfg.Vision == nil && len(prompt.Images)+len(prompt.Videos) > 0 {
		return place{}, fmt.Errorf("has %d images and %d videos, but the model reads text only", len(prompt.Images), len(prompt.Videos))
	}
	if m.cfg.Vision != nil && m.cfg.Vision.names.places && len(prompt.Videos) > 0 {
		return place{}, fmt.Errorf("has %d videos: videos of Qwen3-VL are not supported, only images", len(prompt.Videos))
	}
	places, next, err := m.standing(prompt)
	if err != nil {
		return place{}, err
	}
	at := place{len(out.ids), len(prompt.IDs), next}
	out.ids = append(out.ids, prompt.IDs...)
	out.places = append(out.places, places...)
	out.spans = append(out.spans, torchx.Span{Q: at.first, QLen: at.n, Own: at.first, OwnLen: at.n, Causal: true})
	pictures, clips := prompt.Images, prompt.Videos
	for i := 0; i < len(prompt.IDs) && m.cfg.Vision != nil; {
		var picture pixels.Patches
		switch prompt.IDs[i] {
		case m.cfg.ImageToken:
			picture, pictures = pictures[0], pictures[1:]
		case m.cfg.VideoToken:
			picture, clips = clips[0], clips[1:]
		default:
			i++
			continue
		}
		n := picture.Grid[0] * picture.Grid[1] * picture.Grid[2] / m.cfg.Vision.Cell()
		if want := n * m.cfg.Vision.Cell(); picture.Rows != want || len(picture.Data) != want*m.cfg.Vision.PatchSize() {
			return place{}, fmt.Errorf("a picture of grid %v has %d rows and %d values, want %d rows of %d", picture.Grid, picture.Rows,
				len(picture.Data), want, m.cfg.Vision.PatchSize())
		}
		for k := range n {
			out.mediaAt = append(out.mediaAt, int64(at.first+i+k))
		}
		out.pictures = append(out.pictures, picture)
		i += n
	}
	return at, nil
}

// standing returns where a prompt's tokens stand, and the next free position.
func (m *Model) standing(prompt *processor.Prompt) (at []position, next int, err error) {
	images, videos := gridsOf(prompt.Images), gridsOf(prompt.Videos)
	for i := range videos {
		if videos[i].seconds == 0 { // nothing is known of its rate
			videos[i].seconds = 1
		}
	}
	return m.cfg.positions(prompt.IDs, images, videos)
}

// cells is how many vectors a prompt's pictures have.
func (m *Model) cells(p *processor.Prompt) int {
	return list.Sum(append(gridsOf(p.Images), gridsOf(p.Videos)...), func(g grid) int { return g.t * g.h * g.w / m.cfg.Vision.Cell() })
}

// fillMedia computes the vectors of the rows' pictures.
func (m *Model) fillMedia(in *packed, p *lora.Pass) {
	if len(in.pictures) == 0 {
		return
	}
	in.media = torchx.Cat(0, m.look(in.pictures, p)...)
	m.features.Trim()
}

// scored lists the tokens of all completions [n], group by group, and the row that predicts each: the one before it, which
// is the prompt's last row for a completion's first token.
func (in *packed) scored(groups []Group) (rows, targets []int64) {
	for i, g := range groups {
		for j, ids := range g.Completions {
			for k, id := range ids {
				row := in.answers[i][j].first + k - 1
				if k == 0 {
					row = in.prompts[i].first + in.prompts[i].n - 1
				}
				rows, targets = append(rows, int64(row)), append(targets, id)
			}
		}
	}
	return rows, targets
}

// Hidden returns the decoder's rows that predict the tokens of the completions [n, H], after the final norm. Prompts whose
// candidates are all padding are computed all the same.
func (m *Model) Hidden(groups []Group, p *lora.Pass) (hidden torchx.Tensor, targets []int64, err error) {
	in, err := m.pack(groups, 0)
	if err != nil {
		return hidden, nil, err
	}
	cells, rows := make([]int, len(groups)), make([]int, len(groups))
	for i, g := range groups {
		cells[i], rows[i] = m.cells(g.Prompt), in.prompts[i].n
		for _, a := range in.answers[i] {
			rows[i] += a.n
		}
	}
	m.fillMedia(in, p.Over(cells))
	hidden = m.forward(&in.rows, p.Over(rows))
	at, targets := in.scored(groups)
	if len(at) == 0 {
		return hidden, nil, nil
	}
	return torchx.IndexSelect(hidden, 0, m.Int64s(at)), targets, nil
}
