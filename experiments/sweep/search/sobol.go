package search

import (
	_ "embed"
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"fulcrum/experiments/sweep/sweeper"
	"fulcrum/internal/rng"
)

// sobol covers the space evenly: trial n is point n of Sobol's sequence (Sobol 1967), with the direction numbers
// of Joe & Kuo (2008). Scrambled, it keeps its evenness, and different seeds give different points.
type sobol struct {
	space      *space
	directions [][sobolBits]uint32 // of each dimension, by bit of the point's number
	shift      []uint32            // of each dimension
}

const sobolBits = 32

// polynomial is a primitive polynomial over GF(2), its inner coefficients as bits of a, and the first direction
// numbers, one for each degree.
type polynomial struct {
	a uint32
	m []uint32
}

// joeKuoTable has the dimensions 2 to 64 of new-joe-kuo-6.21201, optimized for the two-dimensional projections: S. Joe and
// F. Y. Kuo (2008), "Constructing Sobol sequences with better two-dimensional projections",
// https://web.maths.unsw.edu.au/~fkuo/sobol/ (BSD licence). A line has the dimension, the degree, a and m.
//
//go:embed joe_kuo.txt
var joeKuoTable string

// joeKuo returns the polynomials of joeKuoTable.
func joeKuo() []polynomial {
	var out []polynomial
	_, rows, _ := strings.Cut(joeKuoTable, "\n")
	for row := range strings.Lines(rows) {
		var numbers []uint32
		for _, field := range strings.Fields(row) {
			n, _ := strconv.ParseUint(field, 10, 32)
			numbers = append(numbers, uint32(n))
		}
		out = append(out, polynomial{numbers[2], numbers[3:]})
	}
	return out
}

func newSobol(opt sweeper.Options, s *space) (sweeper.Sweeper, error) {
	if !opt.Scramble {
		return plainSobol(s)
	}
	return scrambledSobol(s, seed(opt))
}

// plainSobol returns the sequence itself; its point 0 is the corner of the space.
func plainSobol(s *space) (*sobol, error) {
	polynomials := joeKuo()
	if n := len(s.axes); n > len(polynomials)+1 {
		return nil, fmt.Errorf("%d keys are swept: want at most %d", n, len(polynomials)+1)
	}
	q := &sobol{space: s, directions: make([][sobolBits]uint32, len(s.axes)), shift: make([]uint32, len(s.axes))}
	for d := range q.directions {
		v := &q.directions[d]
		if d == 0 { // van der Corput
			for i := range v {
				v[i] = 1 << (sobolBits - 1 - i)
			}
			continue
		}
		p := polynomials[d-1]
		degree := len(p.m)
		for i := range v {
			if i < degree {
				v[i] = p.m[i] << (sobolBits - 1 - i)
				continue
			}
			v[i] = v[i-degree] ^ v[i-degree]>>degree
			for k := 1; k < degree; k++ {
				if p.a>>(degree-1-k)&1 == 1 {
					v[i] ^= v[i-k]
				}
			}
		}
	}
	return q, nil
}

// scrambledSobol multiplies the digits of each dimension by a random lower triangular matrix and shifts them
// (Matoušek 1998): every dyadic box still holds as many points as before.
func scrambledSobol(s *space, seed int64) (*sobol, error) {
	q, err := plainSobol(s)
	if err != nil {
		return nil, err
	}
	for d := range q.directions {
		stream := rng.New(seed, "sobol scramble", d)
		var rows [sobolBits]uint32 // row i has its diagonal at digit i, counted from the first behind the point
		for i := range rows {
			above := uint32(0)
			if i > 0 {
				above = stream.Uint32() &^ (1<<(sobolBits-i) - 1)
			}
			rows[i] = above | 1<<(sobolBits-1-i)
		}
		for k, v := range q.directions[d] {
			mixed := uint32(0)
			for i, row := range rows {
				mixed |= uint32(bits.OnesCount32(row&v)&1) << (sobolBits - 1 - i)
			}
			q.directions[d][k] = mixed
		}
		q.shift[d] = stream.Uint32()
	}
	return q, nil
}

// point returns point n of the sequence, in [0, 1).
func (q *sobol) point(n uint32) []float64 {
	point := make([]float64, len(q.directions))
	gray := n ^ n>>1
	for d, v := range q.directions {
		x := q.shift[d]
		for g := gray; g != 0; g &= g - 1 {
			x ^= v[bits.TrailingZeros32(g)]
		}
		point[d] = float64(x) / (1 << sobolBits)
	}
	return point
}

// at returns trial number n. Where the space has few points and this one was tried before, later parts of the
// sequence are looked through for another.
func (q *sobol) at(n int, history []sweeper.Trial) []string {
	const apart = 1 << 20 // farther than any sweep goes
	seen := tried(history)
	first := q.space.texts(q.point(uint32(n)))
	if !seen[joined(first)] {
		return first
	}
	for i := 1; i <= redraws; i++ {
		if params := q.space.texts(q.point(uint32(n + i*apart))); !seen[joined(params)] {
			return params
		}
	}
	return first
}

func (q *sobol) Next(history []sweeper.Trial) ([]string, error) {
	return q.at(next(history), history), nil
}
