// Package iclshapes is built-in data on which demonstrations matter. A picture shows one object; the question asks for the name of
// its shape or of its colour; the answer is the ordinary word and a made-up one, "red dax". Which word goes with red is drawn anew
// for every world, so no model can know it, and only a demonstration that names the same tells (fast binding, as in
// Tsimpoukelis et al. 2021, arXiv:2106.13884).
//
//	b, err := iclshapes.Episodes(iclshapes.DefaultOptions()) // what a small model learns to use demonstrations from
package iclshapes
