// Package texts reads text-to-text data: a source and the target to write from it, such as a document and
// its summary, from JSON, JSON Lines and Parquet files.
//
//	b, err := texts.Open(opt)              // or texts.Summaries, built in
//	s, err := b.Train.Sample(i)            // decoded now: s.Messages is the source, s.Reference the target
//
// A sample is a conversation of one turn, so all that token policies do with conversations works here too.
// Files stay on disk: memory grows by some bytes a record.
package texts
