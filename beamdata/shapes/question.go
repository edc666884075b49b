package shapes

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"fulcrum/internal/list"
)

const questionsPerScene = 3 // of training scenes; val and dev scenes have one question each

// ask is a question with its true answer and the answers a careless person might give.
type ask struct {
	text  string
	truth string
	slips []string
}

type kind uint8

const (
	colourOf    kind = iota // of the only object of a shape
	shapeOf                 // of the only object of a colour
	countShape              // objects of a shape
	countColour             // objects of a colour
	countAll                //
	beside                  // the shape left of, right of, above, below another
	exists                  // an object of a shape and a colour
	bigger                  // of two shapes
	biggest                 // the colour of the biggest object
	numKinds
)

var kindWeights = [numKinds]int{34, 28, 7, 6, 2, 9, 6, 5, 7}

// Wording varies on purpose: it carries no information, but much of the cosine between questions.
// {a} and {b} are the things asked about, {A} is a plural.
var templates = [numKinds][]string{
	colourOf: {"what color is the {a}?", "which color does the {a} have?", "tell me the color of the {a}.",
		"can you name the color of the {a}?"},
	shapeOf: {"what shape is the {a} thing?", "which shape does the {a} one have?", "tell me the shape of the {a} thing.",
		"can you name the {a} shape?"},
	countShape:  {"how many {A} are there?", "count the {A}.", "can you tell me the number of {A}?"},
	countColour: {"how many {a} things are there?", "count the {a} things.", "can you tell me the number of {a} things?"},
	countAll:    {"how many things are there?", "count all things."},
	beside:      {"what shape is {b} the {a}?", "tell me the shape {b} the {a}."},
	exists:      {"is there a {b} {a}?", "can you see a {b} {a}?"},
	bigger:      {"which is bigger, the {a} or the {b}?", "tell me the bigger one of {a} and {b}."},
	biggest:     {"what color is the biggest thing?", "tell me the color of the biggest shape."},
}

var openings = []string{"", "", "", "in this picture, ", "look closely: ", "just wondering, "}
var endings = []string{"", "", "", " look at the drawing.", " answer in a word.", " thanks a lot."}

// fillIn words a question: template, things asked about, maybe an opening and an ending.
func fillIn(r *rand.Rand, k kind, a, b string) string {
	t := templates[k][r.IntN(len(templates[k]))]
	plural := a + "s"
	if strings.HasSuffix(a, "ss") {
		plural = a + "es"
	}
	t = strings.NewReplacer("{a}", a, "{b}", b, "{A}", plural).Replace(t)
	return openings[r.IntN(len(openings))] + t + endings[r.IntN(len(endings))]
}

// questions draws n different questions about a scene.
func (s *scene) questions(r *rand.Rand, n int) []ask {
	var out []ask
	seen := map[string]bool{}
	for len(out) < n {
		k := kind(weighted(r, kindWeights[:]...))
		q, about, ok := s.question(r, k)
		if about = strconv.Itoa(int(k)) + about; ok && !seen[about] {
			seen[about] = true
			out = append(out, q)
		}
	}
	return out
}

// question tries to ask a question of one kind; about names what was asked, apart from wording.
func (s *scene) question(r *rand.Rand, k kind) (q ask, about string, ok bool) {
	o := s.objects[r.IntN(len(s.objects))]
	a, b := "", ""
	switch k {
	case colourOf:
		if _, ok = s.only(s.shapeIs(o.shape)); !ok {
			return
		}
		a, q = shapeNames[o.shape], ask{truth: hues[o.hue].name, slips: s.otherHues(o.hue)}
	case shapeOf:
		if _, ok = s.only(s.hueIs(o.hue)); !ok {
			return
		}
		a, q = hues[o.hue].name, ask{truth: shapeNames[o.shape], slips: s.otherShapes(o.shape)}
	case countShape:
		sh := o.shape
		if r.IntN(8) == 0 {
			sh = shape(r.IntN(int(numShapes)))
		}
		a, q = shapeNames[sh], counted(s.count(s.shapeIs(sh)))
	case countColour:
		h := o.hue
		if r.IntN(8) == 0 {
			h = r.IntN(numHues)
		}
		a, q = hues[h].name, counted(s.count(s.hueIs(h)))
	case countAll:
		q = counted(len(s.objects))
	case beside:
		var side string
		var found object
		if _, unique := s.only(s.shapeIs(o.shape)); !unique {
			return
		}
		if side, found, ok = s.neighbour(r, o); !ok {
			return
		}
		a, b, q = shapeNames[o.shape], side, ask{truth: shapeNames[found.shape], slips: s.otherShapes(found.shape)}
	case exists:
		sh, h := o.shape, o.hue
		if r.IntN(5) < 3 { // plausible, but mostly not there: any colour, or another object's
			h = r.IntN(numHues)
			if r.IntN(2) == 0 {
				h = s.objects[r.IntN(len(s.objects))].hue
			}
		}
		q = ask{truth: "no", slips: []string{"yes"}}
		if s.count(func(o object) bool { return o.shape == sh && o.hue == h }) > 0 {
			q = ask{truth: "yes", slips: []string{"no"}}
		}
		a, b = shapeNames[sh], hues[h].name
	case bigger:
		p := s.objects[r.IntN(len(s.objects))]
		_, one := s.only(s.shapeIs(o.shape))
		_, two := s.only(s.shapeIs(p.shape))
		if !one || !two || o.big == p.big {
			return
		}
		q = ask{truth: shapeNames[o.shape], slips: []string{shapeNames[p.shape]}}
		if p.big {
			q = ask{truth: shapeNames[p.shape], slips: []string{shapeNames[o.shape]}}
		}
		a, b = shapeNames[o.shape], shapeNames[p.shape]
	case biggest:
		if o, ok = s.only(func(o object) bool { return o.big }); !ok {
			return
		}
		q = ask{truth: hues[o.hue].name, slips: s.otherHues(o.hue)}
	}
	q.text = fillIn(r, k, a, b)
	return q, a + "/" + b, true
}

func counted(n int) ask {
	q := ask{truth: strconv.Itoa(n), slips: []string{strconv.Itoa(n + 1)}}
	if n > 0 {
		q.slips = append(q.slips, strconv.Itoa(n-1))
	}
	return q
}

// neighbour picks a side of o on which exactly one kind of shape is clearly nearest.
func (s *scene) neighbour(r *rand.Rand, o object) (side string, found object, ok bool) {
	sides := [...]struct {
		name   string
		dx, dy float64
	}{{"left of", -1, 0}, {"right of", 1, 0}, {"above", 0, -1}, {"below", 0, 1}}
	d := sides[r.IntN(len(sides))]
	best := math.Inf(1)
	for _, p := range s.objects {
		along := (p.x-o.x)*d.dx + (p.y-o.y)*d.dy
		across := math.Abs((p.x-o.x)*d.dy) + math.Abs((p.y-o.y)*d.dx)
		if along > 8 && across < 10 && along < best {
			best, found, ok = along, p, true
		}
	}
	return d.name, found, ok
}

// others are the names a careless person might give: those of the scene, and the next.
func (s *scene) others(name func(object) string, not, next string) []string {
	all := list.Unique(list.Map(s.objects, name))
	return append(list.Filter(all, func(n string) bool { return n != not }), next)
}

func (s *scene) otherHues(not int) []string {
	return s.others(func(o object) string { return hues[o.hue].name }, hues[not].name, hues[(not+1)%numHues].name)
}

func (s *scene) otherShapes(not shape) []string {
	return s.others(func(o object) string { return shapeNames[o.shape] }, shapeNames[not], shapeNames[(not+1)%numShapes])
}

// Describe is the request that Caption answers.
const Describe = "describe the picture."

// Caption describes the scene that row is about: every object with size, colour and shape, in reading order.
func (q *Questions) Caption(row int) string {
	s := newScene(q.Options.Seed, q.Items[row].Scene)
	place := func(o object) int { // of the grid, row by row
		const cell = float64(ImageSize) / cells
		return int(o.y/cell)*cells + int(o.x/cell)
	}
	slices.SortFunc(s.objects, func(a, b object) int { return place(a) - place(b) })
	return strings.Join(list.Map(s.objects, func(o object) string {
		size := "small "
		if o.big {
			size = "big "
		}
		return size + hues[o.hue].name + " " + shapeNames[o.shape]
	}), ", ")
}

const annotators = 10

// AnswerCount is one distinct answer of a question's ten.
type AnswerCount struct {
	Answer string
	Count  int
}

// synonyms are other words people use; annotators who know the answer sometimes do.
var synonyms = map[string][]string{
	"red": {"crimson"}, "orange": {"amber"}, "yellow": {"gold"}, "green": {"lime"}, "blue": {"navy"}, "purple": {"violet"},
	"pink":   {"magenta"},
	"circle": {"disc", "ball"}, "square": {"box", "block"}, "triangle": {"pyramid"}, "cross": {"plus"}, "ring": {"donut", "hoop"},
	"star": {"stars"},
	"0":    {"none"}, "1": {"one"}, "2": {"two"}, "3": {"three"}, "4": {"four"}, "5": {"five"}, "yes": {"yeah"}, "no": {"nope"},
}

// answers simulates ten annotators: most give the true answer, some in another word, some slip, some
// don't know. How many slip depends on the question's own difficulty.
func (q ask) answers(r *rand.Rand) []AnswerCount {
	slip := []int{4, 8, 15, 30}[weighted(r, 35, 35, 20, 10)] // percent
	tally := map[string]int{}
	for range annotators {
		a := q.truth
		switch roll := r.IntN(100); {
		case roll < slip:
			a = q.slips[r.IntN(len(q.slips))]
		case roll < slip+2:
			a = "unknown"
		case roll < slip+16 && len(synonyms[a]) > 0:
			a = synonyms[a][r.IntN(len(synonyms[a]))]
		}
		tally[a]++
	}
	var out []AnswerCount
	for a, n := range tally {
		out = append(out, AnswerCount{a, n})
	}
	slices.SortFunc(out, func(a, b AnswerCount) int { // most frequent first, ties by word
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Answer, b.Answer))
	})
	return out
}

// vqaAccuracy is the official VQA accuracy of an answer that count of the ten annotators gave: the mean
// over annotators of min(1, matches among the nine others / 3), which is min(1, 0.3·count).
func vqaAccuracy(count int) float64 { return math.Min(1, float64(3*count)/10) }
