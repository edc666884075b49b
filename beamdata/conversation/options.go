package conversation

// Options is the section data.conversations of the configuration.
type Options struct {
	// JSON or JSONL file of conversations to train on; split by data.train_ratio unless val is given
	Train *string `koanf:"train"`
	// file of the validation conversations, instead of a split
	Val *string `koanf:"val"`
	// file of held-out conversations: reported, never used for a choice
	Eval *string `koanf:"eval"`

	// file of demonstrations that the sft phase imitates instead of train's targets
	SFT *string `koanf:"sft"`
	// how many training samples sft imitates (null = all): demonstrations are dear, rewards cheap
	Demos *int `koanf:"demos" range:"[1,inf)"`
	// sft also learns to describe every training scene (data=shapes)
	Captions bool `koanf:"captions"`

	// what stays on one side of the split: all records of one image or video, or single records
	SplitBy string `koanf:"split_by" enum:"image,record"`

	// system message of conversations that have none; empty = the chat template's own
	System string `koanf:"system"`
	// text put before that of the last user turn, after its leading images
	Prefix string `koanf:"prefix"`
	// text put after the last user turn
	Suffix string `koanf:"suffix"`

	// which frames of videos are taken
	Video VideoOptions `koanf:"video"`

	// how many records of each set are decoded and their files looked up before training (null = all)
	CheckRecords *int `koanf:"check_records" range:"[0,inf)" constant:"true"`

	// Set by the program from the keys of data.
	Root       string  `koanf:"-"` // folder of relative paths of pictures; "" = the file's own
	TrainRatio float64 `koanf:"-"` // share of Train that trains where there is no Val
	SplitSeed  int64   `koanf:"-"`
	MaxSamples *int    `koanf:"-"` // keep the first so many training samples; nil = all
}

// DefaultOptions checks a thousand records at start.
func DefaultOptions() Options {
	check := 1000
	return Options{SplitBy: "image", Video: DefaultVideoOptions(), CheckRecords: &check, TrainRatio: 0.8}
}

func (o Options) wording() wording { return wording{o.System, o.Prefix, o.Suffix} }
