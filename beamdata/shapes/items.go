package shapes

import (
	"image"

	"fulcrum/internal/rng"
)

// Questions are the items of a set without anything that only a selector of examples needs: no
// embeddings, pools, beams or records. The items are those that Generate makes from the same options.
type Questions struct {
	Options Options
	Items   []Item // training queries, then reader questions, then val, then dev
}

// MakeQuestions draws the questions alone: a second for 100,000. It uses all processors.
func MakeQuestions(opt Options) *Questions { return &Questions{Options: opt, Items: makeItems(opt)} }

// Split returns the rows [from, to) of a split's queries: Train leaves the reader's questions out.
func (q *Questions) Split(name string) (from, to int) {
	first := q.Options.trainRows()
	switch name {
	case Train:
		return 0, q.Options.TrainQueries
	case Val:
		return first, first + q.Options.ValQueries
	default:
		return first + q.Options.ValQueries, first + q.Options.ValQueries + q.Options.DevQueries
	}
}

// Image renders the scene that row is about, [ImageSize, ImageSize] pixels.
func (q *Questions) Image(row int) image.Image {
	s := newScene(q.Options.Seed, q.Items[row].Scene)
	return s.render()
}

// trainRows is the number of candidates: rows 0 to trainRows()-1.
func (o Options) trainRows() int { return o.TrainQueries + o.ReaderQuestions }

// makeItems draws scenes and questions until every split is full. A scene belongs to one split; the
// questions of the reader's prior and the training queries may share one (they are one split).
func makeItems(opt Options) []Item {
	type job struct {
		split           string
		first, n, scene int // n items from first on
	}
	var jobs []job
	rows := 0
	add := func(split string, n, perScene int) {
		for end := rows + n; rows < end; rows += min(perScene, end-rows) {
			jobs = append(jobs, job{split, rows, min(perScene, end-rows), len(jobs)})
		}
	}
	add(Train, opt.trainRows(), questionsPerScene)
	add(Val, opt.ValQueries, 1)
	add(Dev, opt.DevQueries, 1)
	items := make([]Item, rows)
	each(len(jobs), func(i int) {
		j := jobs[i]
		s, r := newScene(opt.Seed, j.scene), rng.New(opt.Seed, "shapes questions", j.scene)
		for k, q := range s.questions(r, j.n) {
			answers := q.answers(r)
			items[j.first+k] = Item{Split: j.split, Scene: j.scene, Question: q.text, Answer: answers[0].Answer, Answers: answers}
		}
	})
	return items
}
