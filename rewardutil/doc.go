// Package rewardutil holds the numbers of reinforcement learning that need no tensor, a package for each trade:
//
//	group       values of candidates in groups: masks, moments, ranks, scales, RCE's weights
//	advantage   how a group's rewards become advantages, and which candidates of it count
//	recorded    rewards of recorded candidates
//	reward      rewards of completions, a file each
//	scorer      scores from a program of the user's
//	text        answers, words, sentences and ROUGE
//	vqa         VQA accuracy and the official evaluation
//	schedule    learning rate and RCE's temperature over the steps of a phase
//	control     controllers of the KL: β and the policy's temperature
//	torchorder  the order in which libtorch sorts equal values
//
// They know no phase, policy or file layout; slices of float64 go in and come out, so that every formula can be read and
// tested without loading libtorch.
//
//	r, err := opt.Reward.Reward(trajectory)                        // one number for one recorded candidate
//	adv, stats := advantage.Compute(rewards, valid, B, G, opt.Adv) // [B*G], over the whole group
//	tau := opt.Temperature.At(step, total)                         // schedules are pure functions
//
// Letters are those of the whole project: B queries, G candidates per query, S shots. Matrices [B, G]
// are flat, row by row; a valid mask is true where an entry counts, and a nil mask means all do.
// docs/algorithms.md maps every function to its equation and source.
package rewardutil
