package reward

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/rewardutil/scorer"
	"fulcrum/rewardutil/text"
)

// score1 scores one item.
func score1(t *testing.T, r Reward, it Item) float64 {
	t.Helper()
	v, err := r.Score(context.Background(), []Item{it})
	if err != nil {
		t.Fatal(err)
	}
	return v[0]
}

func TestAnswer(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"no tags: all of it", " a cat \n", "a cat"},
		{"inside the tags", "<think>hm</think> so <answer> a cat </answer>.", "a cat"},
		{"the first pair", "<answer>a</answer><answer>b</answer>", "a"},
		{"tags in the thought do not count", "<think>use <answer>x</answer></think><answer>y</answer>", "y"},
		{"unless there are none after it", "<answer>x</answer><think>done</think>", "x"},
		{"an open tag is text", "<think>hm</think><answer>a cat", "<think>hm</think><answer>a cat"},
		{"empty", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := text.Answer(tc.in); got != tc.want {
				t.Errorf("Answer(%q) = %q, want %q", tc.in, got, tc.want)
			}
		})
	}
}

func TestFormat(t *testing.T) {
	plain := DefaultOptions().Format
	strict := plain
	strict.Strict = true
	for _, tc := range []struct {
		name, in      string
		plain, strict float64
	}{
		{"all in order", "<think>a</think><answer>b</answer>", 1, 1},
		{"white space and line ends are free", "\n<think>\na\n</think>\n <answer>b</answer>\n", 1, 1},
		{"both pairs, wrong order", "<answer>b</answer><think>a</think>", 0.6, 0.6},
		{"thought only", "<think>a</think> b", 0.3, 0},
		{"answer only", "<answer>b</answer>", 0.3, 0.3},
		{"cut off", "<think>a</think><answer>b", 0.3, 0},
		{"closed before opened", "</think><think></answer><answer>", 0, 0},
		{"interleaved pairs are not in order", "<think><answer></think></answer>", 0.6, 0},
		{"text around", "ok <think>a</think> so <answer>b</answer> done", 1, 0},
		{"twice", "<think>a</think><answer>b</answer><answer>c</answer>", 1, 0},
		{"a tag twice inside of its pair", "<think>a<think>b</think><answer>c</answer>", 1, 0},
		{"and closed twice around", "<think>a</think></think><answer>b<answer>c</answer>", 1, 0},
		{"an answer inside of the thought", "<think>a<answer>b</answer></think>", 0.6, 0.6},
		{"and one behind it", "<think>a<answer>b</answer></think><answer>c</answer>", 1, 0},
		{"closed in the thought, opened behind it", "<think></answer></think><answer>b", 0.3, 0},
		{"capitals are other tags", "<THINK>a</THINK><Answer>b</Answer>", 0, 0},
		{"nothing", "", 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			it := Item{Completion: tc.in}
			golden.Close(t, []float64{score1(t, plain, it), score1(t, strict, it)}, []float64{tc.plain, tc.strict}, 1e-15)
		})
	}
}

func TestAccuracy(t *testing.T) {
	recipe := DefaultOptions().Accuracy
	anySpace, tagged := recipe, recipe
	anySpace.Split, tagged.Tagged = "any", true
	for _, tc := range []struct {
		name                        string
		completion, reference       string
		wantRecipe, wantAny, wantTg float64
	}{
		{"equal", "move_left, jump", "move_left, jump", 1, 1, 0},
		{"case, blanks and full stops", "<answer> Move_Left,  jump. </answer>", "move_left, jump", 1, 1, 1},
		{"order does not matter to sets", "jump, move_left", "move_left, jump", 1, 1, 0},
		{"one of three", "jump, run", "jump, duck", 1. / 3, 1. / 3, 0},
		{"repeats count once", "jump, jump; run", "run, jump", 1, 1, 0},
		{"actions of two words", "move left, jump", "move right, jump", 1. / 3, 0.5, 0},
		{"a word of an action is no action", "the", "pick up the screw, attach the wheel", 0, 1. / 6, 0},
		{"brackets and quotes", `["jump", 'run']`, "jump, run", 1, 1, 0},
		{"the reference may have tags", "jump", "<think>x</think><answer>jump</answer>", 1, 1, 0},
		{"nothing in common", "a", "b", 0, 0, 0},
		{"empty completion", "", "b", 0, 0, 0},
		{"other numbers, the same words", "(3) pick up the wheel (4) attach the screw", "(1) pick up the screw (2) attach the wheel", 0, 0.6, 0},
		{"numbers alone", "<answer>(1)(2)</answer>", "(1) Action 1 (2) Action 2", 1, 0, 1},
		{"one number of two", "<answer>(2) something else</answer>", "(1) Action 1 (2) Action 2", 0.5, 0.2, 0.5},
		{"words of numbered options without their numbers", "Action 1, Action 2", "(1) Action 1 (2) Action 2", 0, 1, 0},
		{"numbers where the reference has none", "(1) jump", "jump", 0, 0.5, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			it := Item{Completion: tc.completion, Reference: tc.reference}
			got := []float64{score1(t, recipe, it), score1(t, anySpace, it), score1(t, tagged, it)}
			golden.Close(t, got, []float64{tc.wantRecipe, tc.wantAny, tc.wantTg}, 1e-15)
		})
	}
}

// The answers of the video recipe's own records, scored by its own function: every answer and some others against
// every reference.
func TestAccuracyOfNumberedAnswersIsTheRecipes(t *testing.T) {
	data, err := os.ReadFile("../testdata/numbered_actions.json")
	if err != nil {
		t.Fatal(err)
	}
	var recipe struct {
		References, Completions []string
		Scores                  [][]float64
	}
	if err := json.Unmarshal(data, &recipe); err != nil || len(recipe.References) != 14 || len(recipe.Scores) != 21 {
		t.Fatalf("%d references, %d rows: %v", len(recipe.References), len(recipe.Scores), err)
	}
	o := DefaultOptions().Accuracy
	o.Tagged = true
	for i, completion := range recipe.Completions {
		for j, reference := range recipe.References {
			got := score1(t, o, Item{Completion: completion, Reference: reference})
			if want := recipe.Scores[i][j]; math.Abs(got-want) > 1e-11 { // written with 12 digits
				t.Errorf("%q against %q: %v, want %v", completion, reference, got, want)
			}
		}
	}
}

func TestMatch(t *testing.T) {
	text := func(s string) *string { return &s }
	for _, tc := range []struct {
		name                  string
		change                func(*MatchOptions)
		completion, reference string
		want                  float64
	}{
		{"the answer contains the reference's", nil, "<think>two?</think><answer>It is a Red   ball.</answer>", "<answer>red ball</answer>", 1},
		{"what is thought does not count", nil, "<think>red</think><answer>blue</answer>", "red", 0},
		{"a text of the configuration", func(o *MatchOptions) { o.Text = text("[1].") }, "see [1].", "", 1},
		{"its signs are no expression", func(o *MatchOptions) { o.Text = text("[1].") }, "see 1!", "", 0},
		{"case, where it counts", func(o *MatchOptions) { o.By = "regexp" }, "Red", "(?-i)red", 0},
		{"an expression", func(o *MatchOptions) { o.By, o.Text = "regexp", text(`^\(\d+(, \d+)\)$`) }, "(82, 56)", "", 1},
		{"an expression that does not match", func(o *MatchOptions) { o.By, o.Text = "regexp", text(`^\d+$`) }, "<answer>12 apples</answer>", "",
			0},
		{"the reference as an expression", func(o *MatchOptions) { o.By = "regexp" }, "seven", "^(7|seven)$", 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := DefaultOptions().Match
			o.Weight = 1
			if tc.change != nil {
				tc.change(&o)
			}
			r, err := o.build()
			if err != nil {
				t.Fatal(err)
			}
			golden.Close(t, []float64{score1(t, r, Item{Completion: tc.completion, Reference: tc.reference})}, []float64{tc.want}, 0)
		})
	}
	o := DefaultOptions().Match
	o.By = "regexp"
	r, err := o.build()
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Score(context.Background(), []Item{{Name: "q7", Completion: "x", Reference: "(7|seven"}})
	if want := `q7: the reference "(7|seven" is no regular expression (RE2 syntax): error parsing regexp: missing closing )`; err == nil ||
		!strings.HasPrefix(err.Error(), want) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestVQAReward(t *testing.T) {
	answers := []string{"two", "2", "2", "3", "2", "2", "2", "2", "2", "2"}
	for in, want := range map[string]float64{"<think>1+1</think><answer>Two.</answer>": 1, "3": 0.3, "4": 0} {
		golden.Close(t, []float64{score1(t, VQAOptions{}, Item{Completion: in, Answers: answers})}, []float64{want}, 1e-12)
	}
	agreed := Item{Completion: "Two.", Answers: []string{"2", "2", "2", "2"}}
	golden.Close(t, []float64{score1(t, VQAOptions{}, agreed), score1(t, VQAOptions{Normalize: true}, agreed)}, []float64{0, 1}, 1e-12)
}

func TestRougeReward(t *testing.T) {
	it := Item{Completion: "<answer>the cats sat</answer>", Reference: "the cat sat down"}
	o := DefaultOptions().Rouge
	// stemmed: unigrams 3 of 3 and 4, pairs 2 of 2 and 3, subsequence 3
	want := (6./7 + 4./5 + 6./7) / 3
	golden.Close(t, []float64{score1(t, o, it)}, []float64{want}, 1e-15)
	o.Shares = []float64{1, 3, 0}
	golden.Close(t, []float64{score1(t, o, it)}, []float64{(6./7 + 3*4./5) / 4}, 1e-15)
	o.Shares = nil
	o.Types = []string{"rougeLsum"}
	golden.Close(t, []float64{score1(t, o, it)}, []float64{6. / 7}, 1e-15)
}

func TestParsePoints(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     [][2]float64
	}{
		{"pairs in text", "at (1, 2) and ( 3.5 ,-4 )", [][2]float64{{1, 2}, {3.5, -4}}},
		{"a list", "points: [[1, 2], [3, 4]]", [][2]float64{{1, 2}, {3, 4}}},
		{"one point", "[5, 6]", [][2]float64{{5, 6}}},
		{"Qwen's form in a fence", "```json\n[{\"point_2d\": [7, 8], \"label\": \"x\"}, {\"point_2d\": [9, 10]}]\n```",
			[][2]float64{{7, 8}, {9, 10}}},
		{"the key's points, not the others", `{"bbox": [1, 2, 3, 4], "positive_points": [[0, 0]], "negative_points": [[1, 1]]}`,
			[][2]float64{{1, 1}}},
		{"points where the key is absent", `{"points": [{"x": 1, "y": 2}]}`, [][2]float64{{1, 2}}},
		{"a box is no point", "[1, 2, 3, 4]", nil},
		{"the first value with points wins", `[] {"a": 1} [[1, 2]] [[3, 4]]`, [][2]float64{{1, 2}}},
		{"brackets that are no JSON", "[left] (1, 2)", [][2]float64{{1, 2}}},
		{"a pair inside an open bracket", "(see (1, 2)", [][2]float64{{1, 2}}},
		{"not finite", "(inf, 1) (NaN, 2)", nil},
		{"no points", "none", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := ParsePointPrompt(tc.in).Negative; !reflect.DeepEqual(got, tc.want) {
				t.Errorf("negative points of %q: %v, want %v", tc.in, got, tc.want)
			}
		})
	}
}

func TestParsePointPrompt(t *testing.T) {
	type points = [][2]float64
	type boxes = [][4]float64
	for _, tc := range []struct {
		name, in string
		want     PointPrompt
	}{
		{"all three under their keys", `{"bbox": [10, 20, 5, 40], "positive_points": [[1, 2]], "negative_points": [[3, 4], [5, 6]]}`,
			PointPrompt{points{{3, 4}, {5, 6}}, points{{1, 2}}, boxes{{5, 20, 10, 40}}}},
		{"Qwen's list with labels", `[{"bbox_2d": [1, 2, 3, 4], "label": "cup"}, {"point_2d": [5, 6], "label": "positive"}, {"point_2d": [7, 8], "label": "negative"}]`,
			PointPrompt{points{{7, 8}}, points{{5, 6}}, boxes{{1, 2, 3, 4}}}},
		{"a segmenter's points and labels", `{"points": [[1, 2], [3, 4], [5, 6]], "labels": [1, 0, 1]}`,
			PointPrompt{points{{3, 4}}, points{{1, 2}, {5, 6}}, nil}},
		{"several boxes", `{"boxes": [[0, 0, 1, 1], [2, 2, 3, 3]]}`, PointPrompt{Boxes: boxes{{0, 0, 1, 1}, {2, 2, 3, 3}}}},
		{"in values of their own", "box {\"bbox\": [1, 2, 3, 4]} and points [[7, 8]]",
			PointPrompt{Negative: points{{7, 8}}, Boxes: boxes{{1, 2, 3, 4}}}},
		{"positive points in an object of their own", `{"positive_points": [{"x": 1, "y": 2}]} then (3, 4)`,
			PointPrompt{Negative: points{{3, 4}}, Positive: points{{1, 2}}}},
		{"a box of three numbers is none", `{"bbox": [1, 2, 3], "negative_points": [[1, 1]]}`, PointPrompt{Negative: points{{1, 1}}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := ParsePointPrompt(tc.in); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got  %+v\nwant %+v", got, tc.want)
			}
		})
	}
}

func FuzzParsePoints(f *testing.F) {
	f.Add(`{"negative_points": [[1, 2]]} (3, 4)`)
	f.Fuzz(func(t *testing.T, s string) {
		for _, p := range ParsePointPrompt(s).Negative {
			if math.IsNaN(p[0]+p[1]) || math.IsInf(p[0], 0) {
				t.Fatalf("%v in %q", p, s)
			}
		}
	})
}

// writeMask writes a PNG that is white inside the rectangle.
func writeMask(t *testing.T, dir, name string, w, h int, inside image.Rectangle) {
	t.Helper()
	img := image.NewPaletted(image.Rect(0, 0, w, h), color.Palette{color.Black, color.White})
	for y := inside.Min.Y; y < inside.Max.Y; y++ {
		for x := inside.Min.X; x < inside.Max.X; x++ {
			img.SetColorIndex(x, y, 1)
		}
	}
	f, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(png.Encode(f, img), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestPoints(t *testing.T) {
	dir := t.TempDir()
	writeMask(t, dir, "object.png", 20, 10, image.Rect(0, 0, 10, 10))   // the left half
	writeMask(t, dir, "confused.png", 20, 10, image.Rect(10, 0, 20, 5)) // the upper right quarter
	meta := `{"ground_truth_mask": "object.png", "confusion_mask": "confused.png"}`
	sized := `{"ground_truth_mask": "object.png", "confusion_mask": "confused.png", "width": 200, "height": 100}`
	for _, tc := range []struct {
		name, completion, meta string
		change                 func(*PointsOptions)
		want                   float64
	}{
		{"a hit that misses the object", "(15, 2)", meta, nil, 1},
		{"outside both", "(15, 7)", meta, nil, 0.5},
		{"on the object", "(5, 2)", meta, nil, 0},
		{"half of the points", "(15, 2) (5, 2)", meta, nil, 0.5},
		{"a repeated point counts once", "(15, 2) (15.4, 2.9)", meta, nil, 0.5},
		{"fewer than asked for", "(15, 2)", meta, func(o *PointsOptions) { o.Count = 4 }, 0.25},
		{"outside of the image is neither", "(20.5, 2)", meta, nil, 0},
		{"pixels of the image that the model saw", "(150, 20)", sized, nil, 1},
		{"thousandths", "(750, 200)", meta, func(o *PointsOptions) { o.Coordinates = "thousand" }, 1},
		{"shares, the far edge included", "(1, 0)", meta, func(o *PointsOptions) { o.Coordinates = "unit" }, 1},
		{"no points", "nowhere", meta, nil, 0},
		{"a positive point on the object, one off it", `{"positive_points": [[5, 2], [15, 7]]}`, meta,
			func(o *PointsOptions) { o.Hit, o.Miss, o.Positive = 0, 0, 1 }, 0.5},
		{"the object's box", `{"box": [0, 0, 10, 10]}`, meta, func(o *PointsOptions) { o.Hit, o.Miss, o.Box = 0, 0, 1 }, 1},
		{"half of the object's box, in the image's pixels", `{"bbox": [0, 0, 50, 100], "negative_points": [[150, 20]]}`, sized,
			func(o *PointsOptions) { o.Hit, o.Miss, o.Box = 0, 0.5, 0.5 }, 0.75},
		{"positive points are no negative ones", `{"positive_points": [[15, 2]]}`, meta, nil, 0},
		{"without a confusion mask when hits do not count", "(15, 7)", `{"ground_truth_mask": "object.png"}`,
			func(o *PointsOptions) { o.Hit = 0 }, 0.5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := DefaultOptions().Points
			o.Weight = 1
			if tc.change != nil {
				tc.change(&o)
			}
			r, err := o.build()
			if err != nil {
				t.Fatal(err)
			}
			got := score1(t, r, Item{Completion: tc.completion, Meta: []byte(tc.meta), Root: dir})
			golden.Close(t, []float64{got}, []float64{tc.want}, 1e-15)
		})
	}
}

// What the plot of points shows: how many negative points are named, in the confusion region and on the object.
func TestPointsAreCounted(t *testing.T) {
	dir := t.TempDir()
	writeMask(t, dir, "object.png", 20, 10, image.Rect(0, 0, 10, 10))
	writeMask(t, dir, "confused.png", 20, 10, image.Rect(10, 0, 20, 5))
	items := []Item{
		{Completion: "(15, 2) (16, 2) (16, 2) (5, 5)", Meta: []byte(`{"ground_truth_mask": "object.png", "confusion_mask": "confused.png"}`),
			Root: dir},
		{Completion: "nothing", Meta: []byte(`{"ground_truth_mask": "object.png", "confusion_mask": "confused.png"}`), Root: dir},
	}
	o := DefaultOptions()
	o.Points.Weight, o.Length.Weight = 2, 0
	check := func(want map[string][]float64) {
		t.Helper()
		r, err := o.Build(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		total, terms, err := r.Score(context.Background(), items)
		if err != nil {
			t.Fatal(err)
		}
		if golden.Close(t, total, []float64{2 * want["points"][0], 0}, 1e-15); !reflect.DeepEqual(terms, want) {
			t.Errorf("terms %v, want %v", terms, want)
		}
	}
	counts := map[string][]float64{"points": {0.5*2/4 + 0.5*2/4, 0}, "points_named": {4, 0}, "points_in_confusion": {2, 0},
		"points_on_object": {1, 0}}
	check(counts)
	o.Points.Segmenter = httpScorer(t, func(w http.ResponseWriter, items []scorer.Item) { fmt.Fprint(w, "[0.25]") })
	counts["points"] = []float64{0.25, 0}
	check(counts) // a segmenter's score, and still what the masks tell
	items = []Item{{Completion: "(15, 2)", Meta: []byte(`{"confusion_mask": "gone.png"}`)}, {Completion: "no"}}
	check(map[string][]float64{"points": {0.25, 0}, "points_named": {1, 0}})
}

// Points in pixels mean nothing on two masks of different sizes, unless the image's own size is known.
func TestPointsRefuseMasksOfTwoSizes(t *testing.T) {
	dir := t.TempDir()
	writeMask(t, dir, "object.png", 20, 10, image.Rect(0, 0, 10, 10))
	writeMask(t, dir, "confused.png", 40, 20, image.Rect(20, 0, 40, 10))
	o := DefaultOptions().Points
	o.Weight = 1
	r, err := o.build()
	if err != nil {
		t.Fatal(err)
	}
	item := Item{Name: "q7", Completion: "(15, 2)", Root: dir,
		Meta: []byte(`{"ground_truth_mask": "object.png", "confusion_mask": "confused.png"}`)}
	_, err = r.Score(context.Background(), []Item{item})
	if want := "q7: the masks have 40×20 and 20×10 pixels (width × height)"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	item.Meta = []byte(`{"ground_truth_mask": "object.png", "confusion_mask": "confused.png", "width": 20, "height": 10}`)
	golden.Close(t, []float64{score1(t, r, item)}, []float64{1}, 0)
}

func TestCompositionAddsWeightedTerms(t *testing.T) {
	o := DefaultOptions()
	o.Format.Weight, o.Accuracy.Weight = 0.3, 0.7 // the Qwen-VL recipe
	top := 0.5
	o.ClipMax = &top
	r, err := o.Build(nil)
	if err != nil {
		t.Fatal(err)
	}
	total, terms, err := r.Score(context.Background(), []Item{
		{Completion: "<think>x</think><answer>jump</answer>", Reference: "jump"},
		{Completion: "<answer>jump, run</answer>", Reference: "jump"},
	})
	if err != nil {
		t.Fatal(err)
	}
	golden.Close(t, total, []float64{0.5, 0.3*0.3 + 0.7*0.5}, 1e-15)
	golden.Close(t, terms["format"], []float64{1, 0.3}, 1e-15)
	golden.Close(t, terms["accuracy"], []float64{1, 0.5}, 1e-15)
	if len(terms) != 2 {
		t.Errorf("terms %v: want format and accuracy alone", terms)
	}
	o.Scale = 0.5
	if r, err = o.Build(nil); err != nil {
		t.Fatal(err)
	}
	total, _, err = r.Score(context.Background(), []Item{{Completion: "<answer>jump, run</answer>", Reference: "jump"}})
	if err != nil {
		t.Fatal(err)
	}
	golden.Close(t, total, []float64{0.5 * (0.3*0.3 + 0.7*0.5)}, 1e-15)
}

func TestWhatATermNeedsIsNamed(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Options)
		meta   string
		want   string
	}{
		{"accuracy", func(o *Options) { o.Accuracy.Weight = 1 }, "", "rewards.accuracy: q7: accuracy needs a reference completion, and the " +
			"record has none"},
		{"match", func(o *Options) { o.Match.Weight = 1 }, "", "rewards.match: q7: match needs a text or a reference completion, and the " +
			"record has none"},
		{"rouge", func(o *Options) { o.Rouge.Weight = 1 }, "", "rewards.rouge: q7: ROUGE needs a reference completion"},
		{"length", func(o *Options) { o.Length.Weight = 1 }, "", "rewards.length: q7: length similarity needs a reference completion"},
		{"vqa", func(o *Options) { o.VQA.Weight = 1 }, "", "rewards.vqa: q7: VQA accuracy needs the annotators' answers"},
		{"points without meta", func(o *Options) { o.Points.Weight = 1 }, "", "rewards.points: q7: points need the masks ground_truth_mask " +
			"and confusion_mask in meta"},
		{"points without a mask", func(o *Options) { o.Points.Weight = 1 }, `{"confusion_mask": 3}`,
			"rewards.points: q7: meta has no confusion_mask: want the path of a PNG mask"},
		{"points without the file", func(o *Options) { o.Points.Weight = 1 }, `{"confusion_mask": "/no/m.png"}`,
			"rewards.points: q7: meta.confusion_mask: no file /no/m.png"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := DefaultOptions()
			tc.change(&o)
			r, err := o.Build(nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = r.Score(context.Background(), []Item{{Name: "q7", Completion: "x", Meta: []byte(tc.meta)}})
			if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
}

func TestOptionsThatCannotWork(t *testing.T) {
	address := "ftp://x"
	low, high := 1.0, 0.0
	bad, perl, empty := "(a", "a(?=b)", " "
	for _, tc := range []struct {
		name   string
		change func(*Options)
		want   string
	}{
		{"all off", func(*Options) {}, "rewards: every term has weight 0"},
		{"clip", func(o *Options) { o.VQA.Weight, o.ClipMin, o.ClipMax = 1, &low, &high }, "rewards.clip_max: want more than clip_min 1, got 0"},
		{"a scale of nothing", func(o *Options) { o.VQA.Weight, o.Scale = 1, 0 }, "rewards.scale: want a number above 0, got 0"},
		{"negative weight", func(o *Options) { o.VQA.Weight = -1 }, "rewards.vqa.weight: want a number in [0, inf), got -1"},
		{"no shares", func(o *Options) { o.Format = FormatOptions{Weight: 1} }, "rewards.format.order: all shares are 0"},
		{"a share too few", func(o *Options) { o.Rouge.Weight, o.Rouge.Shares = 1, []float64{1, 2} },
			"rewards.rouge.shares: want one for each of the 3 types, got 2"},
		{"no share", func(o *Options) { o.Rouge.Weight, o.Rouge.Shares = 1, []float64{0, 0, 0} },
			"rewards.rouge.shares: want at least one above 0"},
		{"unknown measure", func(o *Options) { o.Rouge.Weight, o.Rouge.Types = 1, []string{"rougel"} },
			`rewards.rouge.types: want one of rouge1, rouge2, rougeL, rougeLsum, got "rougel" (did you mean rougeL?)`},
		{"unknown split", func(o *Options) { o.Accuracy.Weight, o.Accuracy.Split = 1, "commas" },
			`rewards.accuracy.split: want one of numbered, comma, any, got "commas" (did you mean comma?)`},
		{"a bad expression", func(o *Options) { o.Match.Weight, o.Match.By, o.Match.Text = 1, "regexp", &bad },
			"rewards.match.text: want a regular expression (RE2 syntax): error parsing regexp: missing closing )"},
		{"a look-ahead", func(o *Options) { o.Match.Weight, o.Match.By, o.Match.Text = 1, "regexp", &perl },
			"rewards.match.text: want a regular expression (RE2 syntax): error parsing regexp: invalid or unsupported Perl syntax"},
		{"an empty text", func(o *Options) { o.Match.Weight, o.Match.Text = 1, &empty }, "rewards.match.text: an empty text is in every answer"},
		{"no scorer", func(o *Options) { o.External.Weight = 1 }, "rewards.external.url: want the address of a scorer, or its command"},
		{"no web address", func(o *Options) { o.External.Weight, o.External.URL = 1, &address },
			`rewards.external.url: want an http or https address, got "ftp://x"`},
		{"no such program", func(o *Options) { o.External.Weight, o.External.Command = 1, []string{"no-such-program"} },
			`rewards.external.command: no program "no-such-program"`},
		{"a program with its argument as one", func(o *Options) { o.External.Weight, o.External.Command = 1, []string{"no-such rew.py"} },
			`rewards.external.command: no program "no-such rew.py": exec: "no-such rew.py": executable file not found in $PATH: a program and ` +
				`its arguments are a list, [no-such,rew.py]`},
		{"segmenter", func(o *Options) { o.Points.Weight, o.Points.Segmenter.URL = 1, &address },
			`rewards.points.segmenter.url: want an http or https address`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := DefaultOptions()
			tc.change(&o)
			_, err := o.Build(nil)
			if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
}

// constant gives every completion the same score.
type constant float64

func (c constant) Score(_ context.Context, items []Item) ([]float64, error) {
	scores := make([]float64, len(items))
	for i := range scores {
		scores[i] = float64(c)
	}
	return scores, nil
}

func TestTextRewardsThatOverflow(t *testing.T) {
	for _, tc := range []struct {
		name   string
		score  constant
		weight float64
		want   string // "" = accepted
	}{
		{"a huge score", 1e308, 1, "rewards.judge: x: score 1e+308, want a number within ±1e+30"},
		{"a huge weight", 1e20, 1e20, "rewards: x: the weighted sum is 1e+40, want a number within ±1e+30"},
		{"NaN", constant(math.NaN()), 1, "want a finite number"},
		{"the largest", 1e30, -1, ""},
	} {
		r := Rewards{Terms: []Term{{Name: "judge", Weight: tc.weight, Reward: tc.score}}, scale: 1, clipMin: math.Inf(-1), clipMax: math.Inf(1)}
		_, _, err := r.Score(t.Context(), []Item{{Name: "x"}})
		if (tc.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", tc.name, err, tc.want)
		}
	}
}

func TestScorerScores(t *testing.T) {
	for x, want := range map[float64]string{math.Inf(1): "want a finite number", -1e31: "within ±1e+30", 1e30: ""} {
		if err := scorer.CheckScores([]float64{0, x}, 2); (want == "") != (err == nil) || err != nil &&
			!strings.Contains(err.Error(), "score 1 is") {
			t.Errorf("%v: error %v, want %q", x, err, want)
		}
	}
}
