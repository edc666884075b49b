// Package iclshapes is built-in data on which demonstrations matter. A picture shows one object; the question asks for the name of
// its shape or of its colour; the answer is the ordinary word and a made-up one, "red dax". Which word goes with red is drawn anew
// for every world, so no model can know it, and only a demonstration that names the same tells (fast binding, as in
// Tsimpoukelis et al. 2021, arXiv:2106.13884).
//
//	w := iclshapes.NewWorld(beamdata.DefaultICLShapesOptions()) // records with one dictionary
//	err := w.Write(dir)                                 // records, pictures, annotations, features
//	b := iclshapes.Episodes(beamdata.DefaultICLShapesOptions()) // what a small model learns to use demonstrations from
//
// The features of a scene serve as embeddings. Their cosine counts ground and place too, on which no answer depends: similarity is
// better than chance, and a selector that has learned what matters is better than similarity.
package iclshapes
