package workload

import (
	"context"
	"testing"

	"fulcrum/experiments/job"
	"fulcrum/rewardutil/reward"
)

// What the preflight adds up of the terms is what training adds up, scaled and cut: else it stops sound runs.
func TestTotalIsTheRewards(t *testing.T) {
	j := &job.Job{Config: job.DefaultConfig(job.Entries{Policies: Traits()})}
	o := &j.Config.Rewards
	o.Length.Weight, o.Rouge.Weight, o.Scale, o.ClipMax = 0.5, 2, 3, new(4.0)
	rewards, err := o.Build(nil)
	if err != nil {
		t.Fatal(err)
	}
	w := textWorkload[int]{job: j, rewards: rewards}
	for _, completion := range []string{"a red cube", "a cube", "nothing of it"} {
		total, terms, err := rewards.Score(context.Background(), []reward.Item{{Completion: completion, Reference: "a red cube"}})
		if err != nil {
			t.Fatal(err)
		}
		if got := w.total(terms); got != total[0] {
			t.Errorf("%s: %v in the preflight, %v in training", completion, got, total[0])
		}
	}
}
