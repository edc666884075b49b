package lvlm

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strings"

	"fulcrum/experiments/lvlm/store"
	"fulcrum/internal/digest"
)

// key digests a question: what is asked, of which model, about which prompt. Images count by their content, ids not at all.
func (s *Stored) key(name string, p Prompt) (store.Key, error) {
	h := sha256.New()
	h.Write(s.identity[:])
	text := func(t string) { // no two lists of texts give the same bytes
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(t))))
		io.WriteString(h, t)
	}
	text(name)
	for _, e := range append(p.Shots[:len(p.Shots):len(p.Shots)], p.Query) {
		image, err := s.image(e.Image)
		if err != nil {
			return store.Key{}, err
		}
		text(image)
		text(e.Question)
		text(e.Answer)
	}
	return store.Key(h.Sum(nil)), nil
}

// image returns the digest of an image file, "" for none. A file is read once.
func (s *Stored) image(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	if known, ok := s.files.Load(path); ok {
		return known.(string), nil
	}
	sum, err := digest.Of([]byte(path)), error(nil)
	if !strings.HasPrefix(path, "data:") {
		if sum, _, err = digest.File(path); err != nil {
			return "", fmt.Errorf("image: %w", err)
		}
	}
	s.files.Store(path, sum)
	return sum, nil
}

// pack writes a likelihood as pairs of an id (4 bytes) and a log-probability (8 bytes), little-endian.
func (l Likelihood) pack() []byte {
	b := make([]byte, 0, 12*len(l.Tokens))
	for i, id := range l.Tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(l.LogProbs[i]))
	}
	return b
}

func unpack(b []byte) (Likelihood, error) {
	if len(b)%12 != 0 {
		return Likelihood{}, fmt.Errorf("the store holds %d bytes as a likelihood: want 12 a token", len(b))
	}
	var l Likelihood
	for ; len(b) > 0; b = b[12:] {
		l.Tokens = append(l.Tokens, int(int32(binary.LittleEndian.Uint32(b))))
		l.LogProbs = append(l.LogProbs, math.Float64frombits(binary.LittleEndian.Uint64(b[4:])))
	}
	return l, nil
}

// leastLogProb is less than a softmax over a vocabulary hardly gives: the logits of language models lie within some dozens of each
// other, and servers write -9999 or the like for a token that was never to come.
const leastLogProb = -1000

// check refuses what is no likelihood, before it is stored.
func (l Likelihood) check() error {
	if len(l.Tokens) == 0 || len(l.Tokens) != len(l.LogProbs) {
		return fmt.Errorf("%d tokens with %d log-probabilities", len(l.Tokens), len(l.LogProbs))
	}
	for i, v := range l.LogProbs {
		if !(v <= 1e-3 && v >= leastLogProb) { // half precision rounds log 1 to a little more than 0
			return lie{fmt.Errorf("log-probability %v of token %d: want a number between %d and 0, as a softmax gives them", v, l.Tokens[i],
				leastLogProb)}
		}
	}
	return nil
}
