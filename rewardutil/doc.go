// Package rewardutil holds the numbers of reinforcement learning that need no tensor: rewards of
// recorded trajectories, advantages, RCE weights, KL controllers, schedules and VQA
// accuracy. It knows no phase, policy or file layout; slices of float64 go in and come out, so that
// every formula can be read, tested and sweep-checked without loading libtorch.
//
//	r, err := opt.Reward.Reward(trajectory)                             // one number for one recorded beam
//	adv, stats := rewardutil.Advantages(rewards, valid, B, G, opt.Adv)  // [B*G], over the whole group
//	tau := opt.Temperature.At(step, total)                              // schedules are pure functions
//
// Letters are those of the whole project: B queries, G candidates per query, S shots. Matrices [B, G]
// are flat, row by row; a valid mask is true where an entry counts, and a nil mask means all do.
// docs/algorithms.md maps every function to its equation and source.
package rewardutil
