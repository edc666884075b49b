package sweeper

import (
	"reflect"
	"strings"
	"testing"

	"fulcrum/reports/sweeps"
)

func name(s string) *string { return &s }

// Arms come in the order of their file, each behind the one that it starts from.
func TestStudyOf(t *testing.T) {
	o := DefaultOptions()
	o.Arms = map[string]ArmOptions{
		"late": {From: name("middle"), Checkpoint: name("best"), Label: name("the last")}, "middle": {From: name("root"),
			Overrides: []string{"a=1"}}, "root": {}, "other": {},
	}
	o.Questions = []QuestionOptions{{Ask: "Why", Arm: "late", Against: "init"}, {Ask: "How", Arm: "other", Against: "root",
		Split: name("val"), Metric: name("accuracy")}}
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	want := &sweeps.Study{
		Arms: []sweeps.StudyArm{{Name: "root", Label: "root"}, {Name: "middle", Label: "middle", From: "root",
			Checkpoint: "last", Overrides: []string{"a=1"}},
			{Name: "late", Label: "the last", From: "middle", Checkpoint: "best"}, {Name: "other", Label: "other"}},
		Questions: []sweeps.StudyQuestion{{Ask: "Why", Arm: "late", Against: "init"},
			{Ask: "How", Arm: "other", Against: "root", Split: "val", Metric: "accuracy"}},
	}
	if got := o.StudyOf([]string{"late", "middle", "root", "other"}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// Every fault of a study is named by its key.
func TestStudyFaults(t *testing.T) {
	for _, tc := range []struct {
		arms map[string]ArmOptions
		ask  QuestionOptions
		want string
	}{
		{map[string]ArmOptions{"a b": {}}, QuestionOptions{}, "arms.a b: want a name of letters"},
		{map[string]ArmOptions{"a": {Overrides: []string{"lr"}}}, QuestionOptions{}, "arms.a.overrides.0: want key=value, got lr"},
		{map[string]ArmOptions{"a": {Overrides: []string{"x=1", "hydra/launcher=slurm"}}}, QuestionOptions{},
			"arms.a.overrides.1: hydra/launcher=slurm: the study itself sets"},
		{map[string]ArmOptions{"a": {}, "b": {From: name("a"), Overrides: []string{"init.checkpoint=x"}}}, QuestionOptions{},
			"arms.b.overrides.0: init.checkpoint=x: the study itself sets init.checkpoint"},
		{map[string]ArmOptions{"a": {Checkpoint: name("best")}}, QuestionOptions{}, "arms.a.checkpoint: want from as well"},
		{map[string]ArmOptions{"a": {As: name("vl.path")}}, QuestionOptions{}, "arms.a.as: want from as well"},
		{map[string]ArmOptions{"a": {}, "b": {From: name("a"), As: name("vl.path"), Overrides: []string{"vl.path=x"}}},
			QuestionOptions{}, "arms.b.overrides.0: vl.path=x: the study itself sets vl.path"},
		{map[string]ArmOptions{"a": {From: name("a")}}, QuestionOptions{}, "arms.a.from: the arms a ← a start from each other"},
		{map[string]ArmOptions{"c": {From: name("b")}, "b": {From: name("a")}, "a": {From: name("c")}}, QuestionOptions{},
			"arms.a.from: the arms a ← c ← b ← a start from each other"},
		{map[string]ArmOptions{"oracle": {}}, QuestionOptions{}, "arms.oracle: oracle is a baseline"},
		{map[string]ArmOptions{"a": {}}, QuestionOptions{Ask: " ", Arm: "a", Against: "init"}, "questions.0.ask: want the question"},
		{map[string]ArmOptions{"a": {}}, QuestionOptions{Ask: "x", Arm: "b", Against: "init"}, `questions.0.arm: unknown arm "b"`},
	} {
		o := DefaultOptions()
		o.Arms = tc.arms
		if tc.ask != (QuestionOptions{}) {
			o.Questions = []QuestionOptions{tc.ask}
		}
		err := o.Validate()
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("got %v, want %s", err, tc.want)
		} else if n := strings.Count(err.Error(), "start from each other"); n > 1 {
			t.Errorf("one circle is told %d times: %v", n, err)
		}
	}
}
