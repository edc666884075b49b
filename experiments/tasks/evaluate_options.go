package tasks

import (
	"errors"

	"fulcrum/experiments/job"
	"fulcrum/internal/option"
	"fulcrum/rewardutil/text"
)

// EvaluateOptions configures task=evaluate: answers or texts somebody generated, against ground truths. It
// needs no policy, no training data and no libtorch.
type EvaluateOptions struct {
	// vqa: official VQA accuracy, leave-one-out over ten answers; cider: CIDEr-D of captions as pycocoevalcap computes
	// it; rouge: ROUGE-1, 2, L, Lsum as Google's rouge_score
	Metric string `koanf:"metric" enum:"vqa,cider,rouge"`
	// metric=rouge: texts to score, one {id, text} a line (or completion, as task=generate writes)
	Predictions *string `koanf:"predictions"`
	// metric=rouge: the texts to score them against, one {id, text} a line
	References *string `koanf:"references"`
	// metric=rouge: compare Porter stems of words longer than three letters
	Stemmer bool `koanf:"stemmer"`
	// of rougeLsum: lines, as Google's rouge_score, or split by Punkt's rules where there is no line break
	Sentences string `koanf:"sentences" enum:"lines,split"`
	// answers to score: official result file [{question_id, answer}] or one object a line (completion in place of
	// answer is cut to its answer); cider: [{image_id, caption}]
	Results *string `koanf:"results"`
	// official annotation file with the ground truths: of questions, or captions_*.json of COCO
	Annotations *string `koanf:"annotations"`
	// official question file; null = the annotations alone say which questions there are
	Questions *string `koanf:"questions"`
	// ground truths without a result: left out and counted, an error, or scored 0 (null = skip; rouge: error)
	Missing *string `koanf:"missing" enum:"skip,error,zero"`
	// vqa, cider: scores by question and type, or image (null = evaluate.json in the run folder); rouge: {id, rouge1:
	// {precision, recall, fmeasure}, …} a line (null = rouge.jsonl)
	Out *string `koanf:"out"`
}

func evaluateTask() job.Task {
	return job.Task{Run: evaluate, Sections: []string{"eval", "evidence"},
		Options: &EvaluateOptions{Metric: "vqa", Sentences: text.SentencesSplit},
		On:      func(c *job.Config) string { return evaluateOf(c).Judged() },
		Validate: func(c *job.Config) error {
			if evaluateOf(c).Metric == "rouge" && c.Eval.Cluster != nil {
				return option.Errorf("eval.cluster", "evaluate.metric=rouge reads ids and texts, which have nothing in common: want null")
			}
			return nil
		}}
}

func evaluateOf(c *job.Config) *EvaluateOptions { return job.Own[EvaluateOptions](c, "evaluate") }

// Judged returns the file that is judged.
func (o EvaluateOptions) Judged() string {
	if o.Metric == "rouge" {
		return *o.Predictions
	}
	return *o.Results
}

// Rule returns what ground truths without a result count as.
func (o EvaluateOptions) Rule() string {
	switch {
	case o.Missing != nil:
		return *o.Missing
	case o.Metric == "rouge":
		return "error"
	}
	return "skip"
}

// Validate reports the files that are missing from the command line, all at once.
func (o EvaluateOptions) Validate() error {
	var errs []error
	needs := func(key string, path *string, what string) {
		if path == nil {
			errs = append(errs, option.Errorf(key, "task=evaluate %s: evaluate.%s=FILE", what, key))
		}
	}
	not := func(key string, path *string) {
		if path != nil {
			errs = append(errs, option.Errorf(key, "evaluate.metric=%s does not read it", o.Metric))
		}
	}
	if o.Metric == "rouge" {
		not("results", o.Results)
		not("annotations", o.Annotations)
		not("questions", o.Questions)
		needs("predictions", o.Predictions, "with metric=rouge scores predictions")
		needs("references", o.References, "with metric=rouge needs the references")
		return errors.Join(errs...)
	}
	if o.Metric == "cider" {
		not("questions", o.Questions)
	}
	not("predictions", o.Predictions)
	not("references", o.References)
	needs("results", o.Results, "scores a result file")
	needs("annotations", o.Annotations, "needs the ground truths")
	return errors.Join(errs...)
}
