package beamdata

import (
	"maps"
	"slices"
	"strings"

	"fulcrum/beamdata/conversation"
	"fulcrum/beamdata/shapes"
	"fulcrum/beamdata/summaries"
	"fulcrum/beamdata/texts"
	"fulcrum/internal/list"
	"fulcrum/internal/option"
	"fulcrum/internal/stat"
	"fulcrum/rewardutil/group"
	"fulcrum/rewardutil/recorded"
)

// Options is the section data of the configuration. Paths are relative to the start directory.
type Options struct {
	// built in: shapes, and for token policies summaries, icl_shapes; files: beams, okvqa (its folder), and for token
	// policies conversations, texts, vqa, captions (published folders)
	Name string `koanf:"name"`
	// folder of the okvqa files, or from which the paths in conversations start
	Root *string `koanf:"root"`
	// beam file: legacy or RL
	Beams *string `koanf:"beams" also:"beam_data,beam_file"`
	// embedding table: .pt, .pth, .npy or .safetensors, any float type; row = global id
	Embeddings *string `koanf:"embeddings" also:"img_emb,embedding,embs"`
	// reward table (.npz): scores any choice from a query's pool exactly
	Reader *string `koanf:"reader"`
	// beam file of the validation queries, instead of a split
	ValBeams *string `koanf:"val_beams"`
	// RL file of the recorded GRPO groups (null = those of data.beams)
	Records *string `koanf:"records"`
	// questions about images with answers, for embeddings, pools and beams: JSON lines, or the folder of OK-VQA's,
	// VQAv2's or COCO captions' files (null = data=vqa, data=captions or none)
	RecordsICL *string `koanf:"records_icl"`
	// format of the beam files
	Format string `koanf:"format" enum:"auto,legacy,rl,conversations"`

	// share of a beam file's queries that train; the rest validate (0 = all validate)
	TrainRatio float64 `koanf:"train_ratio" range:"[0,1]" also:"val_split,val_fraction,validation_split,test_size,split_ratio"`
	// share of okvqa's train queries that validate
	ValRatio float64 `koanf:"val_ratio" range:"[0,1)" also:"val_split,val_fraction,validation_split,test_size"`
	// seed of the split, apart from seed: seeds are compared on the same questions
	SplitSeed int64 `koanf:"split_seed"`
	// keep the first so many train queries of each file (null = all)
	MaxSamples *int `koanf:"max_samples" range:"[1,inf)" also:"max_train_samples,max_examples"`
	// queries per batch
	BatchSize int `koanf:"batch_size" range:"[1,inf)" also:"per_device_train_batch_size,train_batch_size,bs,batchsize"`
	// new order every epoch
	Shuffle bool `koanf:"shuffle"`
	// which of okvqa's files to read: 2 or 4
	Shots int `koanf:"shots" range:"[1,inf)"`
	// cut every pool to its first so many candidates (null = whole; the reference: 64)
	PoolSize *int `koanf:"pool_size" range:"[1,inf)"`
	// candidates of training queries
	Pool PoolOptions `koanf:"pool"`
	// pool of legacy beam files: the ids of all beams, or the reference's whole table with its wrong labels
	LegacyPool string `koanf:"legacy_pool" enum:"gathered,full_table"`

	Shapes shapes.Options `koanf:"shapes"`
	// the built-in episodes and world in which made-up words name what is seen
	ICLShapes ICLShapesOptions `koanf:"icl_shapes"`
	// what the token policies read
	Conversations conversation.Options `koanf:"conversations"`
	// sources with targets, for the token policies
	Texts texts.Options `koanf:"texts"`
	// the built-in reports to summarise
	Summaries summaries.Options `koanf:"summaries"`
	Eval      EvalOptions       `koanf:"eval"`
	// reward table that only `run open-test` scores, once
	Sealed    *string                `koanf:"sealed"`
	Normalize group.NormalizeOptions `koanf:"normalize"`
	Reward    recorded.Options       `koanf:"reward"`

	// share of a file's records that may be left out because they hold nothing to learn from; more is refused
	MaxSkippedShare float64 `koanf:"max_skipped_share" range:"[0,1]"`
	// drop trajectories whose score is only the fallback's (vqa_eval_mode fallback)
	SkipFallback bool `koanf:"skip_fallback"`
	// drop queries without a correct trajectory
	RequirePositiveQuery bool `koanf:"require_positive_query"`

	// Set by the program, not by users.
	More        []Dataset `koanf:"-"` // what annexes bring behind Datasets
	Compat      bool      `koanf:"-"` // read files as the Python reference does, defects included
	QueriesOnly bool      `koanf:"-"` // task=predict: never look at recorded trajectories or scores
	OpenSealed  bool      `koanf:"-"` // run open-test: the sealed questions are those to evaluate
	// Picture decodes a picture as a run does: for Inspect, which only looks for it where this is nil.
	Picture func(path string) error `koanf:"-"`
	// Cluster is the key of items.jsonl whose value says which questions belong together; "" = image_id.
	Cluster string `koanf:"-"`
}

// EvalOptions names the held-out files: reported at the end, never used for a choice.
type EvalOptions struct {
	// beam file of the evaluation queries
	Beams *string `koanf:"beams"`
	// reward table of the evaluation queries
	Reader *string `koanf:"reader"`

	// training queries, evenly spread, that are evaluated beside the held-out ones (split train); null = none
	TrainQueries *int `koanf:"train_queries" range:"[1,inf)"`
}

// Spread returns n of total indices, evenly spread; all where there are no more.
func Spread(n, total int) []int {
	n = min(n, total)
	return list.Map(stat.Indices(n), func(i int) int { return i * total / n })
}

// DefaultOptions returns the built-in data with the defaults of the contract.
func DefaultOptions() Options {
	return Options{
		Name: "shapes", Format: "auto", TrainRatio: 0.8, ValRatio: 0.1, BatchSize: 32, Shuffle: true, Shots: 2,
		LegacyPool: "gathered", Pool: PoolOptions{HeldOut: "drop"}, Normalize: group.DefaultNormalizeOptions(), Reward: recorded.DefaultOptions(),
		SkipFallback: true, MaxSkippedShare: 0.05, Shapes: shapes.DefaultOptions(), Conversations: conversation.DefaultOptions(),
		Texts: texts.DefaultOptions(), Summaries: summaries.DefaultOptions(), ICLShapes: DefaultICLShapesOptions(),
	}
}

// Choices returns the names that name takes.
func (o Options) Choices() map[string][]string {
	return map[string][]string{"name": Names(o.Datasets())}
}

// Validate reports unknown names and keys that the data needs; Load checks the files.
func (o Options) Validate() error {
	_, err := o.validate()
	return err
}

// validate returns the entry that the options name.
func (o Options) validate() (Dataset, error) {
	given := map[string]bool{"beams": o.Beams != nil, "records": o.Records != nil, "reader": o.Reader != nil,
		"eval.beams": o.Eval.Beams != nil, "eval.reader": o.Eval.Reader != nil, "sealed": o.Sealed != nil, "val_beams": o.ValBeams != nil,
		"shots": o.Shots != DefaultOptions().Shots, "conversations.train": o.Conversations.Train != nil, "texts.train": o.Texts.Train != nil}
	d, err := o.Dataset()
	if err != nil {
		return d, err
	}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if given[key] && !slices.Contains(d.Reads, key) {
			readers := slices.DeleteFunc(o.Datasets(), func(d Dataset) bool { return !slices.Contains(d.Reads, key) })
			return d, option.Errorf(key, "data.name=%s does not read it: add data=%s", o.Name,
				strings.Join(slices.Sorted(slices.Values(Names(readers))), " or data="))
		}
	}
	if d.Check == nil {
		return d, nil
	}
	return d, d.Check(o)
}

// ICLShapesOptions is the section data.icl_shapes of the configuration.
type ICLShapesOptions struct {
	// seed of the world, its tongues included, and of the episodes; apart from the run's seed
	Seed int64 `koanf:"seed" constant:"true"`
	// training records: the selector's queries, and all candidates
	Records int `koanf:"records" range:"[1,10000000]"`
	// held-out records: asked only
	HeldOut int `koanf:"held_out" range:"[1,10000000]"`
	// episodes that the model learns from
	Episodes int `koanf:"episodes" range:"[1,100000000]"`
	// most demonstrations of an episode; those that validate have as many
	Shots int `koanf:"shots" range:"[1,16]" constant:"true"`
}

// DefaultICLShapesOptions returns the world and the episodes of exp=icl_shapes.
func DefaultICLShapesOptions() ICLShapesOptions {
	return ICLShapesOptions{Seed: 2026, Records: 1200, HeldOut: 300, Episodes: 14000, Shots: 2}
}
