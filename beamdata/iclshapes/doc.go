// Package iclshapes is built-in data on which demonstrations and their pictures matter. A picture shows one object on a village's
// ground; the question asks for its colour, and the answer is a made-up word. Three tongues, of three villages each, have the same
// words and turn them round: red is dax in one, wug in another. So a demonstration's text alone tells nothing, only one from a village
// of the query's tongue tells the answer, with its picture, and which villages share a tongue has to be found out.
//
//	w := iclshapes.NewWorld(beamdata.DefaultICLShapesOptions()) // records of nine villages
//	err := w.Write(dir)                                 // records, pictures, annotations, features
//	b := iclshapes.Episodes(beamdata.DefaultICLShapesOptions()) // what a small model learns to use demonstrations from
//
// The features of a scene serve as embeddings. Their cosine counts colour and place too, on which no demonstration's worth depends.
package iclshapes
