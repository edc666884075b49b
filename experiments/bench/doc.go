// Package bench measures training steps: queries per second, milliseconds per step, CPU time and peak
// memory of named workloads, each in a process of its own, optionally beside a peer program that does
// the same mathematics (`make bench`, `bin/bench workloads`).
//
//	err := bench.Run(ctx, opt, os.Stdout)   // generates the data, measures, prints the table
//
// It generates the data, starts the processes and prints; it knows nothing of tensors. What is measured
// is package measure's business: the same files, loaders, phases and policy as a run's.
package bench
