// Package beamdata turns files into the queries, candidate pools, recorded candidates and exact
// rewards that the phases train on. It knows no phase, no policy and no tensor library.
//
//	b, err := beamdata.Load(opt)                 // opt is the section data of the configuration
//	for i := range b.RCE.Len() {
//		pool := b.RCE.Pool(i)                    // [K] rows of b.RCE.Table
//		best := b.RCE.Candidate(i, 0)            // positions in pool, reward, recorded scores
//	}
//	reward, accuracy := b.Online.Scorer.Score(i, positions)
//
// Files are streamed; whatever is skipped is counted by reason in Bundle.Counts, and whatever
// contradicts itself is refused with one line that names file, query and field.
package beamdata
