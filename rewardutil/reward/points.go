package reward

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

	"fulcrum/internal/option"
	"fulcrum/rewardutil/scorer"
	"fulcrum/rewardutil/text"
)

// PointsOptions configures the reward for negative points: places that a completion names, for a promptable
// segmenter to keep out of its mask. Good ones lie where a segmenter is confused, and never on the object.
type PointsOptions struct {
	// weight in the total; 0 = off
	Weight float64 `koanf:"weight" range:"[0,inf)"`
	// unit of the points: pixels (of the image by meta.width and meta.height, else of the mask), unit (0 to 1),
	// thousand (0 to 1000)
	Coordinates string `koanf:"coordinates" enum:"pixels,unit,thousand"`
	// points asked for: naming fewer leaves their share out
	Count int `koanf:"count" range:"[1,inf)"`
	// share for points inside the confusion region
	Hit float64 `koanf:"hit" range:"[0,inf)"`
	// share for points outside the ground truth
	Miss float64 `koanf:"miss" range:"[0,inf)"`
	// share for positive points (positive_points) on the ground truth, of those named; 0 = off
	Positive float64 `koanf:"positive" range:"[0,inf)"`
	// share for the first box named: its IoU with the ground truth's bounding box; 0 = off
	Box float64 `koanf:"box" range:"[0,inf)"`

	// a program that runs a segmenter with the points and scores its mask, instead of the masks in meta
	Segmenter scorer.Options `koanf:"segmenter"`
}

// The masks are PNGs, inside where they are not black. Records name them under these keys of meta, as the recipe's do.
const (
	groundTruth = "ground_truth_mask" // of the object
	confusion   = "confusion_mask"    // of the region that a segmenter takes for the object
)

// setDefaults weighs hits and misses alike; the term is off.
func (o *PointsOptions) setDefaults() {
	*o = PointsOptions{
		Coordinates: "pixels", Count: 1, Hit: 0.5, Miss: 0.5,
		Segmenter: scorer.DefaultOptions(),
	}
}

// Validate reports shares that could only give 0.
func (o PointsOptions) Validate() error {
	if o.Weight == 0 || o.Segmenter.On() { // whose keys are checked as a section of their own
		return nil
	}
	return option.Want(o.Hit+o.Miss+o.Positive+o.Box > 0, "hit",
		"want shares of at least 0 and one above, got hit %v, miss %v, positive %v, box %v", o.Hit, o.Miss, o.Positive, o.Box)
}

type points struct {
	opt       PointsOptions
	masks     *maskCache
	segmenter *scorer.Scorer // nil: masks
}

func (o PointsOptions) build() (Reward, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	p := &points{opt: o, masks: &maskCache{by: map[string]*mask{}}}
	if o.Segmenter.On() {
		var err error
		if p.segmenter, err = scorer.New(o.Segmenter); err != nil {
			return nil, fmt.Errorf("segmenter.%w", err)
		}
	}
	return p, nil
}

// The numbers that the points term reports beside its value, a completion each.
const (
	pointsNamed       = "points_named"        // negative points
	pointsInConfusion = "points_in_confusion" // distinct ones inside the confusion region
	pointsOnObject    = "points_on_object"    // distinct ones on the ground truth
)

// Score returns, for what ParsePointPrompt finds in each completion's answer part,
//
//	hit · (distinct negative points inside the confusion region) / n + miss · (distinct ones outside the ground truth) / n
//	+ positive · (distinct positive points on the ground truth) / (positive points named) + box · IoU
//
// with n = max(count, negative points named, repeated ones included) and the IoU of the first box and the ground truth's
// bounding box; or what the segmenter says of completions that name a negative point. A point outside of the image is nowhere.
// What is not named scores 0. The confusion mask is needed where hit > 0, the ground truth where another share is.
func (p *points) Score(ctx context.Context, items []Item) ([]float64, error) {
	out, _, err := p.ScoreMeasured(ctx, items)
	return out, err
}

// ScoreMeasured is Score and counts the negative points named, in the confusion region and on the object, as far as the
// masks for it are at hand.
func (p *points) ScoreMeasured(ctx context.Context, items []Item) ([]float64, map[string][]float64, error) {
	out := make([]float64, len(items))
	measures := map[string][]float64{pointsNamed: make([]float64, len(items))}
	var ask []scorer.Item
	var asked []int
	for i, it := range items {
		prompt := ParsePointPrompt(text.Answer(it.Completion))
		measures[pointsNamed][i] = float64(len(prompt.Negative))
		score, counts, err := p.onMasks(it, prompt) // also where no point is named: a mistake in meta shows at once
		if err != nil {
			return nil, nil, itemErrorf(items, i, "%v", err)
		}
		for name, n := range counts {
			if measures[name] == nil {
				measures[name] = make([]float64, len(items))
			}
			measures[name][i] = n
		}
		if out[i] = score; p.segmenter != nil && len(prompt.Negative) > 0 {
			ask, asked = append(ask, prompt.on(it)), append(asked, i)
		}
	}
	if len(ask) > 0 {
		scores, err := p.segmenter.Score(ctx, ask)
		if err != nil {
			return nil, nil, err
		}
		for k, i := range asked {
			out[i] = scores[k]
		}
	}
	return out, measures, nil
}

// on is what the segmenter sees of an item.
func (p PointPrompt) on(it Item) scorer.Item {
	s := newScorerItem(it)
	s.Points, s.Positive, s.Boxes = p.Negative, p.Positive, p.Boxes
	return s
}

func (p *points) foresee() func(context.Context, Item) {
	if p.segmenter == nil {
		return nil
	}
	return func(ctx context.Context, it Item) {
		if prompt := ParsePointPrompt(text.Answer(it.Completion)); len(prompt.Negative) > 0 {
			p.segmenter.Foresee(ctx, prompt.on(it))
		}
	}
}

func (p *points) Close() error {
	if p.segmenter == nil {
		return nil
	}
	return p.segmenter.Close()
}

// onMasks returns the score on the masks of meta, and the counts of negative points by name. With a segmenter the score is
// 0 and a mask that meta does not name is passed over.
func (p *points) onMasks(it Item, prompt PointPrompt) (score float64, counts map[string]float64, err error) {
	o := p.opt
	if p.segmenter != nil {
		o.Hit, o.Miss, o.Positive, o.Box = 0, 0, 0, 0
	}
	var meta map[string]json.RawMessage
	if (len(it.Meta) == 0 || json.Unmarshal(it.Meta, &meta) != nil) && p.segmenter == nil {
		return 0, nil, fmt.Errorf("points need the masks %s and %s in meta, and the record has no meta object", groundTruth, confusion)
	}
	unsure, err := p.mask(meta, confusion, it.Root, o.Hit > 0)
	if err != nil {
		return 0, nil, err
	}
	needsObject := o.Miss+o.Positive+o.Box > 0
	object, err := p.mask(meta, groundTruth, it.Root, needsObject)
	if err != nil {
		return 0, nil, err
	}
	_, _, sized := imageSize(meta)
	unclear := unsure != nil && object != nil && o.Coordinates == "pixels" && !sized &&
		(unsure.width != object.width || unsure.height != object.height)
	switch {
	case unclear && o.Hit == 0:
		unsure = nil // it would only count
	case unclear && !needsObject:
		object = nil
	case unclear:
		return 0, nil, fmt.Errorf("the masks have %d×%d and %d×%d pixels (width × height): "+
			"points in pixels want masks of one size, or meta.width and meta.height of the image",
			unsure.width, unsure.height, object.width, object.height)
	}
	counts = map[string]float64{}
	n := float64(max(o.Count, len(prompt.Negative)))
	if unsure != nil {
		inside, _ := p.count(prompt.Negative, unsure, meta)
		counts[pointsInConfusion] = inside
		score += o.Hit * inside / n
	}
	if object != nil {
		inside, outside := p.count(prompt.Negative, object, meta)
		counts[pointsOnObject] = inside
		score += o.Miss * outside / n
		positive, _ := p.count(prompt.Positive, object, meta)
		score += o.Positive * positive / float64(max(1, len(prompt.Positive)))
		if len(prompt.Boxes) > 0 {
			score += o.Box * p.boxIoU(prompt.Boxes[0], object, meta)
		}
	}
	return score, counts, nil
}

// mask opens the mask that a key of meta names; nil where it is not needed and not named.
func (p *points) mask(meta map[string]json.RawMessage, key, root string, needed bool) (*mask, error) {
	if _, named := meta[key]; !named && !needed {
		return nil, nil
	}
	m, err := p.masks.open(meta[key], key, root)
	if err != nil && !needed {
		return nil, nil // it only counts
	}
	return m, err
}

// count returns how many distinct pixels of the points lie inside a mask and how many outside.
func (p *points) count(named [][2]float64, m *mask, meta map[string]json.RawMessage) (inside, outside float64) {
	seen := map[[2]int]bool{}
	for _, q := range named {
		x, y, ok := p.pixel(q, m, meta)
		if at := [2]int{x, y}; ok && !seen[at] {
			seen[at] = true
			if m.inside(x, y) {
				inside++
			} else {
				outside++
			}
		}
	}
	return inside, outside
}

// boxIoU returns the intersection over union of a box and a mask's bounding box.
func (p *points) boxIoU(box [4]float64, m *mask, meta map[string]json.RawMessage) float64 {
	full := p.full(m, meta)
	for k := range box {
		box[k] = box[k] / full[k%2] * float64([2]int{m.width, m.height}[k%2])
	}
	of, ok := m.bounds()
	if !ok {
		return 0
	}
	area := func(b [4]float64) float64 { return max(0, b[2]-b[0]) * max(0, b[3]-b[1]) }
	both := area([4]float64{max(box[0], of[0]), max(box[1], of[1]), min(box[2], of[2]), min(box[3], of[3])})
	if both == 0 {
		return 0
	}
	return both / (area(box) + area(of) - both)
}

func imageSize(meta map[string]json.RawMessage) (width, height float64, ok bool) {
	ok = json.Unmarshal(meta["width"], &width) == nil && json.Unmarshal(meta["height"], &height) == nil && width > 0 && height > 0
	return width, height, ok
}

// full returns the width and height of the whole image in the points' unit.
func (p *points) full(m *mask, meta map[string]json.RawMessage) [2]float64 {
	switch p.opt.Coordinates {
	case "thousand":
		return [2]float64{1000, 1000}
	case "pixels":
		if w, h, ok := imageSize(meta); ok {
			return [2]float64{w, h}
		}
		return [2]float64{float64(m.width), float64(m.height)}
	}
	return [2]float64{1, 1}
}

// pixel returns the mask's pixel that a point lies in.
func (p *points) pixel(q [2]float64, m *mask, meta map[string]json.RawMessage) (x, y int, ok bool) {
	full := p.full(m, meta)
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
