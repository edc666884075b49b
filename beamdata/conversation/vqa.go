package conversation

import (
	"cmp"
	"fmt"
	"slices"

	"fulcrum/beamdata/icl"
	"fulcrum/internal/chat"
	"fulcrum/internal/list"
	"fulcrum/rewardutil/vqa"
)

// VQA returns the published questions of the folder Root as conversations: one question about one image, with the answers of
// its annotators. Reference is the most frequent answer; every distinct answer is a recorded completion whose reward is its VQA
// accuracy. The held-out questions are those of val2014; validation is split off the others by image.
func VQA(opt Options) (*Bundle, error) { return ofRecords("vqa", opt, icl.LoadVQA) }

// Captions returns the images of the folder Root, as COCO's captions are published, as requests for one: Reference is the first
// caption. Split and held-out images are those of VQA; there are no recorded completions.
func Captions(opt Options) (*Bundle, error) { return ofRecords("captions", opt, icl.LoadCaptions) }

func ofRecords(name string, opt Options, load func(key, root string) (*icl.Set, error)) (*Bundle, error) {
	records, err := load("data.root", opt.Root)
	if err != nil {
		return nil, err
	}
	skipped, skippedAt := map[string]int{}, map[string]string{}
	if records.EmptyAt != "" {
		skipped["empty_answers"], skippedAt["empty_answers"] = records.Counts["empty_answers"], "the first: "+records.EmptyAt
	}
	src := &vqaSource{records, opt.wording()}
	train := records.Queries(false)
	var images []int
	if opt.SplitBy != "record" {
		first := map[int64]int{0: -1} // row of a picture, whose number may be negative; 0 is none
		images = list.Map(train, func(row int) int {
			id := records.Records.ImageID(row)
			if _, known := first[id]; !known {
				first[id] = row
			}
			return first[id]
		})
	}
	left, right := Split(len(train), images, opt.TrainRatio, opt.SplitSeed)
	held := list.Map(records.Queries(true), func(row int) int64 { return int64(row) })
	b := &Bundle{Name: name, EvalName: "eval", Unknown: records.Unknown, Skipped: skipped, SkippedAt: skippedAt,
		Train: NewSet("train", src, left), Val: NewSet("val", src, right), Eval: NewSet("eval", src, held)}
	b.Limit(opt.MaxSamples, opt.Demos)
	return b.Seal(), nil
}

type vqaSource struct {
	*icl.Set
	wording wording
}

func (s *vqaSource) Sample(row int64) (Sample, error) {
	r := s.Records.At(int(row))
	out := Sample{ID: row, Name: fmt.Sprint(r.ID), Answers: r.Answers}
	counts := list.Tally(r.Answers)
	distinct := slices.Compact(slices.SortedStableFunc(slices.Values(r.Answers), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(slices.Index(r.Answers, a), slices.Index(r.Answers, b)))
	}))
	if !s.Captions {
		out.Completions = list.Map(distinct, func(a string) Recorded { return Recorded{a, vqa.Accuracy(a, r.Answers, false)} })
	}
	if len(distinct) > 0 {
		out.Reference = distinct[0]
	}
	out.Messages = s.wording.apply([]chat.Message{{Role: "user", Parts: []chat.Part{
		{Type: "image", Path: r.Image}, {Type: "text", Text: r.Question}}}})
	return out, nil
}

// Holds says whether every question has answers. Captions are no group to be compared.
func (s *vqaSource) Holds(need Need) bool {
	return s.Counts["questions_without_answers"] == 0 && (need == Target || !s.Captions)
}

// Cluster implements Clusterer: questions about one image are no independent ones.
func (s *vqaSource) Cluster(row int64, by string) (string, error) {
	r := s.Records.At(int(row))
	switch by {
	case "image":
		return fmt.Sprint(r.ImageID), nil
	case "question":
		return r.Question, nil
	}
	return "", nil
}

func (s *vqaSource) Fingerprint() string { return fmt.Sprintf("vqa %s %+v", s.Digest, s.wording) }
