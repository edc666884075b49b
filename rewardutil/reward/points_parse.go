package reward

import (
	"encoding/json"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// PointPrompt holds the points and boxes of a text for a promptable segmenter, in the text's own unit.
type PointPrompt struct {
	Negative, Positive [][2]float64 // (x, y) to keep out of the mask, to have in it
	Boxes              [][4]float64 // (x1, y1, x2, y2) around the object
}

// ParsePointPrompt returns the points and boxes that a text names, in order. Of each kind, the first JSON value in the text
// that holds any wins; where none holds negative points, every "(x, y)" of the text is one. Points in JSON are [x, y],
// {"x": x, "y": y}, {"point_2d": [x, y]} as Qwen2.5-VL writes them, lists of these, or such a list under a key of an object.
//
//	negative  under negative_points, else under points, point_2d or point, unless a label says positive
//	positive  under positive_points, else where label is positive, foreground or 1; of {"points", "labels"} those labelled 1
//	boxes     four numbers, or lists of four, under boxes, box, bbox or bbox_2d
func ParsePointPrompt(text string) PointPrompt {
	var out PointPrompt
	for rest := text; ; {
		at := strings.IndexAny(rest, "[{")
		if at < 0 {
			break
		}
		rest = rest[at:]
		next := 1 // a bracket that opens no value of ours may have one inside
		var v any
		if in := json.NewDecoder(strings.NewReader(rest)); in.Decode(&v) == nil {
			var found collector
			if found.visit(v); len(found.Negative)+len(found.Positive)+len(found.Boxes) > 0 {
				next = int(in.InputOffset())
			}
			out.Negative = first(out.Negative, found.Negative)
			out.Positive = first(out.Positive, found.Positive)
			out.Boxes = first(out.Boxes, found.Boxes)
		}
		rest = rest[next:]
	}
	if out.Negative == nil {
		out.Negative = pairsInText(text)
	}
	return out
}

func first[T any](a, b []T) []T {
	if len(a) > 0 {
		return a
	}
	return b
}

type collector struct {
	PointPrompt
}

func (c *collector) visit(v any) {
	switch v := v.(type) {
	case []any:
		if p, ok := onePoint(v); ok {
			c.Negative = append(c.Negative, p)
			return
		}
		for _, e := range v {
			c.visit(e)
		}
	case map[string]any:
		c.visitObject(v)
	}
}

// visitObject takes an object's positive points and boxes from their keys, and its other points from the first key that
// has any.
func (c *collector) visitObject(v map[string]any) {
	var inner collector
	if inner.visit(v["positive_points"]); len(inner.Negative) > 0 {
		c.Positive = append(c.Positive, inner.Negative...)
	}
	for _, k := range []string{"boxes", "box", "bbox", "bbox_2d"} {
		c.Boxes = append(c.Boxes, boxesOf(v[k])...)
	}
	var points collector
	named := false
	for _, k := range []string{"negative_points", "points", "point_2d", "point"} {
		if value, ok := v[k]; ok {
			points.visit(value)
			named = true
			break
		}
	}
	if !named {
		if p, ok := onePoint([]any{v["x"], v["y"]}); ok {
			points.Negative = append(points.Negative, p)
		}
	}
	c.Boxes = append(c.Boxes, points.Boxes...)
	labels, _ := v["labels"].([]any)
	for i, p := range points.Negative {
		if isPositive(v["label"]) || len(labels) == len(points.Negative) && isPositive(labels[i]) {
			c.Positive = append(c.Positive, p)
		} else {
			c.Negative = append(c.Negative, p)
		}
	}
	c.Positive = append(c.Positive, points.Positive...)
}

// isPositive reads a label as segmenters and models write it.
func isPositive(label any) bool {
	switch l := label.(type) {
	case float64:
		return l == 1
	case string:
		return strings.Contains(strings.ToLower(l), "positive") || strings.EqualFold(l, "foreground")
	}
	return false
}

func onePoint(v []any) (p [2]float64, ok bool) {
	if len(v) != 2 {
		return p, false
	}
	x, okX := v[0].(float64)
	y, okY := v[1].(float64)
	return [2]float64{x, y}, okX && okY
}

// boxesOf reads [x1, y1, x2, y2], or a list of such, the corners in any order.
func boxesOf(v any) [][4]float64 {
	list, _ := v.([]any)
	var box [4]float64
	for i, e := range list {
		x, ok := e.(float64)
		if !ok || len(list) != 4 {
			var out [][4]float64
			for _, e := range list {
				if _, nested := e.([]any); nested {
					out = append(out, boxesOf(e)...)
				}
			}
			return out
		}
		box[i] = x
	}
	if len(list) != 4 {
		return nil
	}
	return [][4]float64{{min(box[0], box[2]), min(box[1], box[3]), max(box[0], box[2]), max(box[1], box[3])}}
}

var pairInText = regexp.MustCompile(`\(([^(),]*),([^(),]*)\)`)

// pairsInText finds "(x, y)".
func pairsInText(text string) [][2]float64 {
	var out [][2]float64
	for _, pair := range pairInText.FindAllStringSubmatch(text, -1) {
		x, errX := strconv.ParseFloat(strings.TrimSpace(pair[1]), 64)
		y, errY := strconv.ParseFloat(strings.TrimSpace(pair[2]), 64)
		if errX == nil && errY == nil && !math.IsInf(x+y, 0) && !math.IsNaN(x+y) {
			out = append(out, [2]float64{x, y})
		}
	}
	return out
}
