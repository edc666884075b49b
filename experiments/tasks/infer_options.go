//go:build !core

package tasks

import (
	"errors"

	"fulcrum/internal/option"
)

// InferOptions configures task=infer.
type InferOptions struct {
	// who chooses a question's examples: predictions (infer.predictions), random, text or image (nearest by
	// infer.embeddings), best_beam (first candidate in infer.beams), oracle (those of its pool that make the right
	// answer likeliest, which takes knowing it), none (no examples)
	Method string `koanf:"method" enum:"predictions,random,text,image,best_beam,oracle,none"`
	// examples in a prompt
	Shots int `koanf:"shots" range:"[1,16]"`
	// predictions.jsonl of task=predict
	Predictions *string `koanf:"predictions"`
	// embedding table of the records: row i belongs to record i (null = data.embeddings)
	Embeddings *string `koanf:"embeddings"`
	// RL file of the questions that are asked, with the pools of random, text, image and oracle (null = all records)
	Beams *string `koanf:"beams"`
	// the answer that an example shows, of those it has: the most frequent, or the first
	Answer string `koanf:"answer" enum:"majority,first"`
	// official result file to write; null = results.json in the run folder
	Out *string `koanf:"out"`
}

// Validate reports a method without what it reads.
func (o InferOptions) Validate() error {
	return errors.Join(
		option.Want(o.Method != "predictions" || o.Predictions != nil, "predictions", "infer.method=predictions needs a file of task=predict"),
		option.Want(o.Method != "best_beam" || o.Beams != nil, "beams", "infer.method=best_beam needs the RL file of the questions "+
			"(beams.records of task=beams)"),
		option.Want(o.Method != "oracle" || o.Beams != nil, "beams", "infer.method=oracle needs the RL file of the questions, for its pools "+
			"(beams.records of task=beams)"))
}
