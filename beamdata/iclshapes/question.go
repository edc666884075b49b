package iclshapes

import (
	"math/rand/v2"

	"fulcrum/beamdata/shapes"
)

// attribute is what a question asks about.
type attribute int

const (
	ofShape attribute = iota
	ofColour
)

func (a attribute) String() string { return [...]string{"shape", "colour"}[a] }

// words are made up: a world's dictionary draws from them.
var words = [...]string{"dax", "wug", "blick", "toma", "fep", "zup", "koba", "modi", "tulv", "gazz", "riff", "pilk", "norb", "vash", "jeek",
	"spro", "lorp", "manu", "dweb", "chiv", "hask", "quop", "bem", "yosk"}

// names are the shapes' and the colours' ordinary words, by key.
func names() []string {
	of, hues, _ := shapes.Solos()
	return append(of, hues...)
}

// question is what is asked about a thing.
type question struct {
	thing
	about attribute
}

// key is what is named: a shape, or a colour behind the shapes.
func (q question) key() int {
	of, _, _ := shapes.Solos()
	if q.about == ofShape {
		return q.scene.Shape
	}
	return len(of) + q.scene.Hue
}

func (q question) text() string { return "name its " + q.about.String() }

// dictionary is a world's word for each key.
type dictionary []string

func newDictionary(r *rand.Rand) dictionary {
	d := make(dictionary, len(names()))
	for k, w := range r.Perm(len(words))[:len(d)] {
		d[k] = words[w]
	}
	return d
}

// answer is the ordinary word and the made-up one: red dax.
func (d dictionary) answer(key int) string { return names()[key] + " " + d[key] }
