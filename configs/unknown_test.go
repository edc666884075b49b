package configs

import (
	"slices"
	"strings"
	"testing"
)

type unknownPhase struct {
	LR        float64 `koanf:"lr" also:"learning_rate"`
	GroupSize int     `koanf:"group_size" also:"num_generations"`
	SampleTop int     `koanf:"sample_top"`
}

type unknownRoot struct {
	Schedule []string     `koanf:"schedule"`
	Policy   string       `koanf:"policy" enum:"pointer,qwen2_5_vl" also:"vlm=qwen2_5_vl"`
	SFT      unknownPhase `koanf:"sft"`
	GRPO     unknownPhase `koanf:"grpo"`
	LoRA     struct {
		Rank    int  `koanf:"rank" also:"r"`
		Enabled bool `koanf:"enabled"`
	} `koanf:"lora"`
	Generate struct {
		Top int `koanf:"top"`
	} `koanf:"generate"`
	Adapter unknownTerm `koanf:"adapter"`
	Rewards struct {
		Judge unknownTerm `koanf:"judge"`
		Ramp  struct {
			Schedule string `koanf:"schedule"`
		} `koanf:"ramp"`
	} `koanf:"rewards"`
}

type unknownTerm struct {
	Weight float64 `koanf:"weight"`
}

// ofSchedule says that the phases of a schedule act.
type ofSchedule struct{}

func (ofSchedule) Acts(value func(key string) any, key string, _ bool) bool {
	section, _, _ := strings.Cut(key, ".")
	names, _ := value("schedule").([]any)
	return section != "sft" && section != "grpo" && section != "generate" || slices.Contains(names, any(section))
}

func (ofSchedule) Checked(func(key string) any, string) bool { return true }

func (ofSchedule) Choices(_ func(key string) any, key string) []string {
	section, _, _ := strings.Cut(key, ".")
	return []string{"schedule=[" + section + "]"}
}

// What a user of another library writes, or writes in short, is answered with the key that was meant.
func TestUnknownKeys(t *testing.T) {
	schema, err := SchemaOf(&unknownRoot{Schedule: []string{"grpo"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	schema.OwnedBy(ofSchedule{})
	for _, tc := range []struct{ name, overrides, want string }{
		{"another library's name", "lora.r=8", "unknown key lora.r (did you mean lora.rank?)"},
		{"a typing error beside", "lora.rnk=8", "unknown key lora.rnk (did you mean lora.rank?)"},
		{"nothing alike", "lora.width=8", "unknown key lora.width: lora has rank, enabled"},
		{"a short name means the scheduled phase", "lr=1", "unknown key lr (did you mean grpo.lr?)"},
		{"whatever the order", "lr=1 schedule=[sft]", "unknown key lr (did you mean sft.lr?)"},
		{"or each of several", "lr=1 schedule=[sft,grpo]", "unknown key lr (did you mean sft.lr or grpo.lr?)"},
		{"or all of them", "lr=1 schedule=[]", "unknown key lr (did you mean sft.lr or grpo.lr?)"},
		{"both at once", "num_generations=4", "unknown key num_generations (did you mean grpo.group_size?)"},
		{"a section that there is not", "trainer.lr=1", "unknown key trainer.lr (did you mean grpo.lr?)"},
		{"another section's key", "lora.lr=1", "unknown key lora.lr (did you mean grpo.lr?)"},
		{"a key of no section", "lora.policy=1", "unknown key lora.policy (did you mean policy?)"},
		{"part of a name, where that itself does nothing", "lora.top=1", "unknown key lora.top (did you mean grpo.sample_top?)"},
		{"a key further inside its section", "rewards.schedule=1", "unknown key rewards.schedule (did you mean rewards.ramp.schedule?)"},
		{"a section with two letters swapped", "rewards.jugde.weight=1", "unknown key rewards.jugde.weight (did you mean rewards.judge.weight?)"},
		{"a key below a value", "lora.rank.of=1", "unknown key lora.rank.of: lora.rank has no keys of its own, it takes an integer"},
		{"a section's other name", "sft.learning_rate=1", "unknown key sft.learning_rate (did you mean sft.lr?)"},
		{"Hydra's own keys", "output_dir=x", "unknown key output_dir (did you mean hydra.run.dir?)"},
		{"a section to delete", "~adapter", "adapter is always there and cannot be deleted: set adapter.weight=0"},
		{"or one with a switch", "~lora", "lora is always there and cannot be deleted: set lora.enabled=false"},
		{"nothing alike anywhere", "xyzzy=1", "unknown key xyzzy" + noneNear("xyzzy")},
		{"one value for a list", "schedule=sft", "want a list of text, got the text \"sft\": a list of one is schedule=[sft]"},
		{"the start of a value", "policy=qwen", "want one of pointer, qwen2_5_vl, got qwen (did you mean qwen2_5_vl?)"},
		{"another word for a value", "policy=vlm", "want one of pointer, qwen2_5_vl, got vlm (did you mean qwen2_5_vl?)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Compose(Request{Library: tree("--- config\nschedule: [grpo]\npolicy: pointer\n"), Overrides: strings.Fields(tc.overrides),
				Schema: schema})
			if err == nil || !strings.HasSuffix(err.Error(), ": "+tc.want) {
				t.Errorf("%s\n got %v\nwant %s", tc.overrides, err, tc.want)
			}
		})
	}
}

// A program with its arguments for a list is its words, and what is advised composes.
func TestWordsForAList(t *testing.T) {
	type options struct {
		Command []string `koanf:"command"`
	}
	schema, err := SchemaOf(&options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	request := func(override string) Request {
		return Request{Library: tree("--- config\ncommand: []\n"), Overrides: []string{override}, Schema: schema}
	}
	_, err = Compose(request("command='python3 rew.py --n=1,2'"))
	const advice = "command=[python3,rew.py,'--n=1,2']"
	if err == nil || !strings.HasSuffix(err.Error(), ": a list of its words is "+advice) {
		t.Errorf("got %v", err)
	}
	if _, err := Compose(request(advice)); err != nil {
		t.Errorf("what is advised: %v", err)
	}
}
