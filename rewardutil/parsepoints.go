package rewardutil

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// ParsePoints returns the points (x, y) that a text names, in order. The first JSON value in it that holds any
// wins, else every "(x, y)" counts. Points in JSON are [x, y], {"x": x, "y": y}, {"point_2d": [x, y]} as
// Qwen2.5-VL writes them, lists of these, or such a list under key, else under points, of an object. Lists of
// other lengths (boxes) are no points.
func ParsePoints(text, key string) [][2]float64 {
	for at := strings.IndexAny(text, "[{"); at >= 0; {
		var v any
		if json.NewDecoder(strings.NewReader(text[at:])).Decode(&v) == nil {
			if found := collectPoints(v, key); len(found) > 0 {
				return found
			}
		}
		next := strings.IndexAny(text[at+1:], "[{")
		if next < 0 {
			break
		}
		at += 1 + next
	}
	return pairsInText(text)
}

func collectPoints(v any, key string) [][2]float64 {
	switch v := v.(type) {
	case []any:
		if p, ok := onePoint(v); ok {
			return [][2]float64{p}
		}
		var out [][2]float64
		for _, e := range v {
			out = append(out, collectPoints(e, key)...)
		}
		return out
	case map[string]any:
		for _, k := range []string{key, "points", "point_2d", "point"} {
			if inner, ok := v[k]; ok {
				return collectPoints(inner, key)
			}
		}
		if p, ok := onePoint([]any{v["x"], v["y"]}); ok {
			return [][2]float64{p}
		}
	}
	return nil
}

func onePoint(v []any) (p [2]float64, ok bool) {
	if len(v) != 2 {
		return p, false
	}
	x, okX := v[0].(float64)
	y, okY := v[1].(float64)
	return [2]float64{x, y}, okX && okY
}

// pairsInText finds "(x, y)".
func pairsInText(text string) [][2]float64 {
	var out [][2]float64
	for {
		_, after, ok := strings.Cut(text, "(")
		if !ok {
			return out
		}
		text = after
		inside, _, closed := strings.Cut(after, ")")
		left, right, pair := strings.Cut(inside, ",")
		if !closed || !pair {
			continue
		}
		x, errX := strconv.ParseFloat(strings.TrimSpace(left), 64)
		y, errY := strconv.ParseFloat(strings.TrimSpace(right), 64)
		if errX == nil && errY == nil && !math.IsInf(x+y, 0) && !math.IsNaN(x+y) {
			out = append(out, [2]float64{x, y})
		}
	}
}
