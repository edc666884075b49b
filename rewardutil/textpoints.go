package rewardutil

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// PointsOptions configures the reward for negative points: places that a completion names, for a promptable
// segmenter to keep out of its mask. Good ones lie where a segmenter is confused, and never on the object.
type PointsOptions struct {
	Weight      float64 `koanf:"weight" help:"weight in the total; 0 = off" range:"[0,inf)"`
	Key         string  `koanf:"key" help:"JSON key of the points in the answer, where the answer is an object"`
	Coordinates string  `koanf:"coordinates" help:"unit of the points: pixels (of the image as meta.width and meta.height say, else of the mask), unit (0 to 1) or thousand (0 to 1000)" enum:"pixels,unit,thousand"`
	Count       int     `koanf:"count" help:"points asked for: naming fewer leaves their share out" range:"[1,inf)"`
	Hit         float64 `koanf:"hit" help:"share for points inside the confusion region" range:"[0,inf)"`
	Miss        float64 `koanf:"miss" help:"share for points outside the ground truth" range:"[0,inf)"`
	GroundTruth string  `koanf:"ground_truth" help:"key in meta of the object's mask: a PNG, inside where it is not black"`
	Confusion   string  `koanf:"confusion" help:"key in meta of the mask of the region that a segmenter takes for the object"`

	Segmenter ScorerOptions `koanf:"segmenter" help:"a program that runs a segmenter with the points and scores its mask, instead of the masks in meta"`
}

// DefaultPointsOptions weighs hits and misses alike; the term is off.
func DefaultPointsOptions() PointsOptions {
	return PointsOptions{
		Key: "negative_points", Coordinates: "pixels", Count: 1, Hit: 0.5, Miss: 0.5,
		GroundTruth: "ground_truth_mask", Confusion: "confusion_mask", Segmenter: DefaultScorerOptions(),
	}
}

// Validate reports unknown names and shares that could only give 0.
func (o PointsOptions) Validate() error {
	if o.Weight == 0 {
		return nil
	}
	errs := []error{
		want(o.Weight >= 0, "weight", "want at least 0, got %v", o.Weight),
		oneOf("coordinates", o.Coordinates, "pixels", "unit", "thousand"),
		want(o.Count >= 1, "count", "want at least 1, got %d", o.Count),
	}
	if !o.Segmenter.On() { // its keys are checked as a section of their own
		errs = append(errs, want(o.Hit >= 0 && o.Miss >= 0 && o.Hit+o.Miss > 0, "hit", "want shares of at least 0 and one above, got hit %v, miss %v", o.Hit, o.Miss))
	}
	return errors.Join(errs...)
}

// points is the TextReward.
type points struct {
	opt       PointsOptions
	masks     *maskCache
	segmenter *scorer // nil: masks
}

func newPoints(o PointsOptions) (TextReward, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	p := &points{opt: o, masks: newMaskCache()}
	if o.Segmenter.On() {
		var err error
		if p.segmenter, err = newScorer(o.Segmenter); err != nil {
			return nil, fmt.Errorf("segmenter.%w", err)
		}
	}
	return p, nil
}

// Score returns, for the points that ParsePoints finds in each completion's answer part,
//
//	hit · (distinct points inside the confusion region) / n + miss · (distinct points outside the ground truth) / n
//
// with n = max(count, points named, repeated ones included); or what the segmenter says. A point outside of the
// image is neither. No points score 0. The confusion mask is needed where hit > 0, the ground truth where
// miss > 0.
func (p *points) Score(ctx context.Context, items []TextItem) ([]float64, error) {
	out := make([]float64, len(items))
	var ask []scorerItem
	var asked []int
	for i, it := range items {
		named := ParsePoints(Answer(it.Completion), p.opt.Key)
		if p.segmenter == nil { // the masks are looked for even where no point is named: a mistake shows at once
			var err error
			if out[i], err = p.onMasks(it, named); err != nil {
				return nil, itemErrorf(items, i, "%v", err)
			}
		} else if len(named) > 0 {
			s := newScorerItem(it)
			s.Points = named
			ask, asked = append(ask, s), append(asked, i)
		}
	}
	if len(ask) > 0 {
		scores, err := p.segmenter.score(ctx, ask)
		if err != nil {
			return nil, err
		}
		for k, i := range asked {
			out[i] = scores[k]
		}
	}
	return out, nil
}

func (p *points) Close() error {
	if p.segmenter == nil {
		return nil
	}
	return p.segmenter.Close()
}

func (p *points) onMasks(it TextItem, named [][2]float64) (float64, error) {
	var meta map[string]json.RawMessage
	if len(it.Meta) == 0 || json.Unmarshal(it.Meta, &meta) != nil {
		return 0, fmt.Errorf("points need the masks %s and %s in meta, and the record has no meta object", p.opt.GroundTruth, p.opt.Confusion)
	}
	sum := 0.0
	var first *mask
	for _, part := range []struct {
		key    string
		share  float64
		inside bool
	}{{p.opt.Confusion, p.opt.Hit, true}, {p.opt.GroundTruth, p.opt.Miss, false}} {
		if part.share == 0 {
			continue
		}
		m, err := p.masks.open(meta[part.key], part.key, it.Root)
		if err != nil {
			return 0, err
		}
		if first == nil {
			first = m
		}
		if _, _, sized := imageSize(meta); p.opt.Coordinates == "pixels" && !sized && (m.width != first.width || m.height != first.height) {
			return 0, fmt.Errorf("the masks have %d×%d and %d×%d pixels (width × height): points in pixels want masks of one size, or meta.width and meta.height of the image", first.width, first.height, m.width, m.height)
		}
		count := 0
		seen := map[[2]int]bool{}
		for _, q := range named {
			x, y, ok := p.pixel(q, m, meta)
			if at := [2]int{x, y}; ok && !seen[at] {
				seen[at] = true
				if m.inside(x, y) == part.inside {
					count++
				}
			}
		}
		sum += part.share * float64(count) / float64(max(p.opt.Count, len(named)))
	}
	return sum, nil
}

// imageSize is what meta says of the image that points are pixels of.
func imageSize(meta map[string]json.RawMessage) (width, height float64, ok bool) {
	ok = json.Unmarshal(meta["width"], &width) == nil && json.Unmarshal(meta["height"], &height) == nil && width > 0 && height > 0
	return width, height, ok
}

// pixel returns the mask's pixel that a point lies in.
func (p *points) pixel(q [2]float64, m *mask, meta map[string]json.RawMessage) (x, y int, ok bool) {
	full := [2]float64{1, 1} // of the unit
	switch p.opt.Coordinates {
	case "thousand":
		full = [2]float64{1000, 1000}
	case "pixels":
		full = [2]float64{float64(m.width), float64(m.height)}
		if w, h, ok := imageSize(meta); ok {
			full = [2]float64{w, h}
		}
	}
	at := [2]int{}
	for k, size := range [2]int{m.width, m.height} {
		v := q[k] / full[k]
		if !(v >= 0 && v <= 1) {
			return 0, 0, false
		}
		at[k] = min(int(math.Floor(v*float64(size))), size-1) // the far edge belongs to the last pixel
	}
	return at[0], at[1], true
}
