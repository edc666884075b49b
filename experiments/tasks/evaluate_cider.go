package tasks

import (
	"errors"
	"fmt"
	"strings"

	"fulcrum/experiments/job"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/list"
	"fulcrum/internal/stdout"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/stats"
	"fulcrum/rewardutil/text"
)

// This file is task=evaluate with evaluate.metric=cider: captions that a model wrote, against those of people.

// captionResult is an entry of COCO's result file.
type captionResult struct {
	ImageID int64  `json:"image_id"`
	Caption string `json:"caption"`
}

// readCaption is a caption of a file, which may lack a part.
type readCaption struct {
	ImageID *int64  `json:"image_id"`
	Caption *string `json:"caption"`
}

// caption is one of an image, as COCO's annotation file has it.
type caption struct {
	ID      int64  `json:"id"`
	ImageID int64  `json:"image_id"`
	Caption string `json:"caption"`
}

// captionEvaluation is evaluate.json with evaluate.metric=cider. Scores are 0 to 10, as pycocoevalcap prints them.
type captionEvaluation struct {
	Metric    string            `json:"metric"`
	Results   string            `json:"results"`            // file
	Truth     string            `json:"annotations"`        // file
	Rule      string            `json:"missing"`            // what missing results count as
	Images    int               `json:"images"`             // scored
	Annotated int               `json:"annotated_images"`   // in the annotation file
	Missing   int               `json:"missing_results"`    // annotated, but without a result
	CIDEr     float64           `json:"cider"`              // mean over the images
	Interval  *stats.Interval   `json:"interval,omitempty"` // of the mean, 95 %
	ByImage   map[int64]float64 `json:"perImage"`
}

func (e *captionEvaluation) Best() *record.BestSummary {
	return &record.BestSummary{Metric: "cider", Mode: "max", Value: record.Number(e.CIDEr)}
}

// evaluateCaptions scores a result file by CIDEr-D.
func evaluateCaptions(j *job.Job, out string) error {
	opt := *evaluateOf(j.Config)
	references, ids, err := readCaptions(*opt.Annotations)
	if err != nil {
		return err
	}
	results, err := readCaptionResults(*opt.Results)
	if err != nil {
		return err
	}
	e := &captionEvaluation{Metric: opt.Metric, Results: *opt.Results, Truth: *opt.Annotations, Rule: opt.Rule(), Annotated: len(ids)}
	has := list.SetBy(results, func(r captionResult) int64 { return r.ImageID })
	const lack = "images with captions have no result"
	absent, err := unanswered(opt, *opt.Results, lack, ids, has)
	if err != nil {
		return err
	}
	if e.Missing = len(absent); e.Rule == "zero" {
		results = append(results, list.Map(absent, func(id int64) captionResult { return captionResult{ImageID: id} })...)
	}
	if e.ByImage, err = gradeCaptions(references, results); err != nil {
		return fmt.Errorf("%s: %w", *opt.Results, err)
	}
	warnOfUnanswered(j, *opt.Results, lack, e.Missing, len(ids))
	if len(results) == 1 {
		j.Log.Warnf("%s: CIDEr-D weighs words by how few of the scored images have them: of one image it is always 0", *opt.Results)
	}
	scored := list.Map(results, func(r captionResult) int64 { return r.ImageID })
	scores := list.Map(scored, func(id int64) float64 { return e.ByImage[id] })
	e.Images = len(results)
	least, greatest := record.ScoreRange("cider")
	e.CIDEr, e.Interval = stats.MeanInterval(scores, stats.DefaultOptions().Level, least, greatest)
	asked := list.Map(ids, func(id int64) string { return asked(id, references[id]) })
	if err := j.LookAt(asked, e.Metric, scores, "cider"); err != nil || j.Config.DryRun {
		return err
	}
	j.Evaluation = e
	if err := keep(j, e, out); err != nil {
		return err
	}
	stdout.Printf("CIDEr-D %.4f\nevaluation: %s → %s\n", e.CIDEr, page.Plural(e.Images, "image"), out)
	return j.RecordEvaluation(map[string]any{"cider": e.CIDEr},
		record.Evaluation{Split: e.Metric, Policy: "results", Metric: "cider", QueryIDs: scored, Scores: scores})
}

func (e *captionEvaluation) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# CIDEr-D\n\n`%s` against `%s`, as pycocoevalcap computes it: %d of %d images with captions", e.Results, e.Truth,
		e.Images, e.Annotated)
	if e.Missing > 0 {
		fmt.Fprintf(&b, ", %d without a result (evaluate.missing=%s)", e.Missing, e.Rule)
	}
	mean := page.Score(e.CIDEr, 0)
	if i := e.Interval; i != nil {
		var low, high string
		mean, low, high = page.Estimate(e.CIDEr, i.Low, i.High, page.Unsigned)
		mean += fmt.Sprintf(" (95 %% interval %s to %s)", low, high)
	}
	fmt.Fprintf(&b, ".\n\nMean over the images: **%s**", mean)
	b.WriteString(".\n\nTo compare two evaluations image by image, with intervals: `run report FOLDER_A FOLDER_B`.\n")
	return b.String()
}

// readCaptions reads the captions of an annotation file, and its images in their order.
func readCaptions(path string) (references map[int64][]string, ids []int64, err error) {
	var file struct{ Annotations []readCaption }
	if err := readNamed(path, "evaluate.annotations", "not a caption file of COCO: ", &file); err != nil {
		return nil, nil, err
	}
	references = map[int64][]string{}
	for i, a := range file.Annotations {
		if a.ImageID == nil || a.Caption == nil {
			return nil, nil, fmt.Errorf("%s: annotations[%d] has no image_id or no caption: want captions_*.json of COCO", path, i)
		}
		if references[*a.ImageID] == nil {
			ids = append(ids, *a.ImageID)
		}
		references[*a.ImageID] = append(references[*a.ImageID], *a.Caption)
	}
	if len(ids) == 0 {
		return nil, nil, fmt.Errorf("%s: no captions: want an object with a list annotations", path)
	}
	return references, ids, nil
}

func readCaptionResults(path string) ([]captionResult, error) {
	return entries(path, `[{"image_id": 1, "caption": "…"}, …]`, "image", func(entry []byte) (captionResult, error) {
		var r readCaption
		if err := jsonwords.Unmarshal(entry, &r); err != nil {
			return captionResult{}, fmt.Errorf("want an object with image_id and caption: %w", err)
		}
		if r.ImageID == nil || r.Caption == nil {
			return captionResult{}, errors.New("want image_id and caption")
		}
		return captionResult{*r.ImageID, *r.Caption}, nil
	}, func(r captionResult) int64 { return r.ImageID })
}

// gradeCaptions returns the CIDEr-D of every result, 0 to 10. How rare an n-gram is is counted in the references of these images.
func gradeCaptions(references map[int64][]string, results []captionResult) (map[int64]float64, error) {
	of := make([][]string, len(results))
	for i, r := range results {
		if of[i] = references[r.ImageID]; of[i] == nil {
			return nil, fmt.Errorf("image %d has a result and no captions in the annotations", r.ImageID)
		}
	}
	scorer, out := text.NewCIDEr(of), make(map[int64]float64, len(results))
	for i, r := range results {
		out[r.ImageID] = scorer.Score(r.Caption, of[i])
	}
	return out, nil
}
