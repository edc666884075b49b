// Package summaries is the built-in summarisation set: short reports made of facts, as a table or as a talk, and
// a summary that one of four simulated writers would give.
//
//	set := summaries.New(summaries.DefaultOptions())
//	e := set.Example(summaries.Test, 7)      // e.Source, e.Target; made now, the same every time
//
// A summary must select: half of a report's facts are never worth mentioning, and some only when a number is
// large; who won a match has to be read off its score.
//
// References differ as those of real sets do, and the source does not tell who wrote the summary: a third are
// headlines, the others start in one of three ways and go on with details. Imitation learns these
// frequencies, and its likeliest words add up to the headline, with which two thirds of the references hardly
// agree; the long ways to begin have more words in common with each other. That is a gap which reinforcement
// learning on ROUGE can close and more imitation cannot: a reader without fault scores a mean ROUGE-L of 0.29
// by headlines and 0.55 by long summaries with the usual details (TestImitationLeavesAGap).
package summaries
