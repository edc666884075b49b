package conversation

import (
	"cmp"
	"fmt"
	"image"
	"slices"

	"fulcrum/beamdata/shapes"
	"fulcrum/internal/chat"
	"fulcrum/rewardutil/vqa"
)

// Shapes returns the built-in questions as conversations: one question about one rendered scene, with its
// ten answers. Reference is the most frequent answer; every distinct answer is a recorded completion
// whose reward is its VQA accuracy. Pictures are drawn when they are asked for. No scene is in two sets.
func Shapes(sizes shapes.Options, opt Options) *Bundle {
	questions := shapes.MakeQuestions(sizes)
	src := &shapesSource{questions: questions, normalized: map[string]string{}, wording: opt.wording()}
	for _, item := range questions.Items {
		for _, a := range item.Answers {
			if _, ok := src.normalized[a.Answer]; !ok {
				src.normalized[a.Answer] = vqa.NormalizeAnswer(a.Answer)
			}
		}
	}
	set := func(name, split string) *Set {
		from, to := questions.Split(split)
		return NewSet(name, src, Rows(to)[from:])
	}
	b := &Bundle{
		Name: "shapes", Synthetic: true, EvalName: shapes.Dev,
		Notice: "synthetic data: small rendered scenes with generated questions and answers, made for demonstration; give " +
			"data=conversations for real data",
		Train: set("train", shapes.Train), Val: set("val", shapes.Val), Eval: set(shapes.Dev, shapes.Dev),
	}
	b.Limit(opt.MaxSamples, opt.Demos)
	if opt.Captions {
		b.Demos = src.withCaptions(cmp.Or(b.Demos, b.Train), b.Train)
	}
	return b.Seal()
}

// captionRow marks the rows that describe a scene: captionRow + a row about it.
const captionRow = 1 << 40

// withCaptions adds a description of every scene of seen to a set.
func (s *shapesSource) withCaptions(set, seen *Set) *Set {
	out := &Set{Name: "demos", source: s, rows: slices.Clone(set.rows)}
	last := -1
	for _, row := range seen.rows {
		if scene := s.questions.Items[row].Scene; scene != last { // the questions of a scene follow each other
			out.rows = append(out.rows, captionRow+row)
			last = scene
		}
	}
	return out
}

type shapesSource struct {
	questions  *shapes.Questions
	normalized map[string]string // the answers as VQA accuracy compares them
	wording    wording
}

// accuracy is vqa.Accuracy of answer i of a question's own, without normalising all ten for each: with c of
// n annotators who agree, those see c-1 others who do, and the n-c see c.
func (s *shapesSource) accuracy(answers []shapes.AnswerCount, i int) float64 {
	c, n := 0, 0
	for _, a := range answers {
		n += a.Count
		if s.normalized[a.Answer] == s.normalized[answers[i].Answer] {
			c += a.Count
		}
	}
	share := func(matches int) float64 { return min(1, float64(matches)/3) }
	return (float64(c)*share(c-1) + float64(n-c)*share(c)) / float64(n)
}

func (s *shapesSource) Sample(row int64) (Sample, error) {
	if row >= captionRow {
		out := Sample{ID: row, Name: fmt.Sprintf("shapes caption %d", row-captionRow),
			Reference: s.questions.Caption(int(row - captionRow))}
		out.Messages = s.ask(row-captionRow, shapes.Describe)
		return out, nil
	}
	item := s.questions.Items[row]
	out := Sample{ID: row, Name: fmt.Sprintf("shapes %d", row), Reference: item.Answer}
	for _, a := range item.Answers {
		out.Answers = append(out.Answers, slices.Repeat([]string{a.Answer}, a.Count)...)
	}
	for i := range item.Answers {
		out.Completions = append(out.Completions, Recorded{item.Answers[i].Answer, s.accuracy(item.Answers, i)})
	}
	out.Messages = s.ask(row, item.Question)
	return out, nil
}

// ask is a prompt about the scene of a row.
func (s *shapesSource) ask(row int64, text string) []chat.Message {
	return s.wording.apply([]chat.Message{{Role: "user", Parts: []chat.Part{
		{
			Type: "image", Key: fmt.Sprintf("shapes/%d/%d", s.questions.Options.Seed, s.questions.Items[row].Scene),
			Picture: func() (image.Image, error) { return s.questions.Image(int(row)), nil },
		},
		{Type: "text", Text: text},
	}}})
}

// Holds reports that every question has its answers; where all agree there is one to record.
func (s *shapesSource) Holds(Need) bool { return true }

func (s *shapesSource) Fingerprint() string {
	return fmt.Sprintf("shapes %+v %+v", s.questions.Options, s.wording)
}
