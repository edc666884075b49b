package workload

import (
	"context"
	"sync"

	"fulcrum/experiments/job"
	"fulcrum/internal/list"
	"fulcrum/rewardutil/reward"
)

// textJudge is rewards.judge.path: a token policy that answers greedily. It is opened with its first question, when libtorch is
// there.
type textJudge struct {
	job *job.Job
	opt reward.JudgeOptions

	mu    sync.Mutex
	model TextModel
}

// localJudge opens the judges of a run.
func localJudge(j *job.Job) reward.OpenTextModel {
	return func(opt reward.JudgeOptions) (reward.TextModel, error) {
		own, config := *j, j.Config.Copy()
		config.Policy, config.Init.Checkpoint = opt.Policy, nil
		if text := config.Text(); text != nil { // or opening it says what is wrong
			text.Path, text.Adapter = opt.Path, nil
		}
		own.Config, own.Dir = config, "" // a resume has the policy's own model in its folder
		return &textJudge{job: &own, opt: opt}, checkModelAt("path", *opt.Path, opt.Policy)
	}
}

func (t *textJudge) Answer(_ context.Context, prompts []string) ([]string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.model == nil {
		model, err := OpenTextModel(t.job, nil)
		if err != nil {
			return nil, err
		}
		t.model = model
	}
	policy, err := textPolicies().Get(t.opt.Policy)
	if err != nil {
		return nil, err
	}
	asked := make([]any, len(prompts))
	for i, prompt := range prompts {
		line, err := policy.Asks(prompt)
		if err == nil {
			asked[i], _, err = t.model.Prompt(line, "")
		}
		if err != nil {
			return nil, err
		}
	}
	greedy := DefaultGenerateOptions()
	greedy.MaxNewTokens, greedy.DoSample, greedy.BatchSize = t.opt.MaxNewTokens, new(false), len(prompts)
	groups, err := t.model.Generate(asked, greedy, 0, 0)
	if err != nil {
		return nil, err
	}
	return list.Map(groups, func(g []completion) string { return t.model.Decode(g[0].IDs) }), nil
}

func (t *textJudge) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.model != nil {
		t.model.Free()
	}
	return nil
}
