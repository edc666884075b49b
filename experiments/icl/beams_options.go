package icl

import (
	"errors"

	"fulcrum/internal/option"
)

// BeamsOptions configures task=beams: the best sequences of demonstrations for each query, by what the model of lvlm makes of
// them (Lever-LM, Yang et al. 2023, arXiv:2312.10104).
type BeamsOptions struct {
	// how a query's pool is drawn: at random, the most similar by question or by image, or some of each
	Sampler string `koanf:"sampler" enum:"random,text,image,mix"`
	// candidates in a pool
	Candidates int `koanf:"candidates" range:"[1,inf)"`
	// unit vectors of the questions, row i of record i (task=embed embed.modality=text); null = data.embeddings
	TextEmbeddings *string `koanf:"text_embeddings"`
	// unit vectors of the images (embed.modality=image); null = data.embeddings
	ImageEmbeddings *string `koanf:"image_embeddings"`
	// demonstrations of a sequence
	Shots int `koanf:"shots" range:"[1,64]"`
	// sequences that go on at each step
	Width int `koanf:"width" range:"[1,10000]"`
	// where a new demonstration goes: left = before the others, right = behind them, which shares their computation
	Order string `koanf:"order" enum:"left,right"`
	// what is good: infoscore = what the last demonstration adds to the answer's probability; likelihood = that
	// probability (geometric means over the answer's tokens, end token included); cider, vqa = of the greedy answer;
	// none = write pools only, for task=predict
	Score string `koanf:"score" enum:"infoscore,likelihood,cider,vqa,none"`
	// which of a query's answers is scored: most frequent, first, or the one with the largest score. Demonstrations
	// show their most frequent
	Answer string `koanf:"answer" enum:"majority,first,best"`
	// standard deviation of noise on recorded scores
	Noise float64 `koanf:"noise" range:"[0,inf)"`
	// queries: those to train on, or the held-out ones
	Split string `koanf:"split" enum:"train,val"`
	// so many of them, drawn by seed; null = all
	Queries *int `koanf:"queries" range:"[1,inf)"`
	// the search is split over so many jobs: each takes every jobs-th query
	Jobs int `koanf:"jobs" range:"[1,inf)"`
	// which of the jobs this is: 0 to jobs-1
	Job int `koanf:"job" range:"[0,inf)"`
	// beams to write, as the legacy pipeline has them; null = beams.json in the run folder
	Out *string `koanf:"out"`
	// RL records to write: pools and scored sequences; null = records.json in the run folder
	Records *string `koanf:"records"`
	// sequences of an RL record: the best ones, up to width, and others at even ranks of the last step
	Trajectories int `koanf:"trajectories" range:"[1,inf)"`
}

// DefaultBeamsOptions are Lever-LM's: 64 candidates, two shots, five beams, a new demonstration before the others.
func DefaultBeamsOptions() BeamsOptions {
	return BeamsOptions{Sampler: "random", Candidates: 64, Shots: 2, Width: 5, Order: "left", Score: "infoscore",
		Answer: "majority", Split: "train", Jobs: 1, Trajectories: 10}
}

func (o BeamsOptions) Validate() error {
	return errors.Join(
		option.Want(o.Shots <= o.Candidates, "shots", "want at most candidates (%d), got %d", o.Candidates, o.Shots),
		option.Want(o.Job < o.Jobs, "job", "want 0 to jobs-1 (%d), got %d", o.Jobs-1, o.Job))
}
