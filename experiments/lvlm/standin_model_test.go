package lvlm

import (
	"bytes"
	"hash/fnv"
	"image"
	_ "image/jpeg" // formats that it reads
	_ "image/png"
	"math"
	"strings"
)

// Model is what a stand-in serves. Ids of images stand in a prompt as often as the model expands them.
type Model interface {
	// Encode returns the ids of a text with its special tokens.
	Encode(text string) []int
	// Text returns a token's.
	Text(id int) string
	// ImageToken is the id that stands for an image, and how many of them an image becomes.
	ImageToken(image []byte) (id, n int)
	// LogProbs returns the log-probabilities [len(ids)-from, V] of the tokens that follow ids[:from+1], ids[:from+2], …
	LogProbs(ids []int, images [][]byte, from int) [][]float64
}

// Toy is a small deterministic model: the distribution of a token is a hash of everything before it. Its tokens are bytes and
// the special tokens of Qwen.
type Toy struct{}

func specials() []string {
	return []string{"<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|image_pad|>", "<|vision_end|>"}
}

// Encode returns bytes and special tokens.
func (Toy) Encode(text string) []int {
	var ids []int
next:
	for len(text) > 0 {
		for i, token := range specials() {
			if strings.HasPrefix(text, token) {
				ids, text = append(ids, 256+i), text[len(token):]
				continue next
			}
		}
		ids, text = append(ids, int(text[0])), text[1:]
	}
	return ids
}

// Text returns a byte, U+FFFD for one that is no letter by itself, or the name of a special token.
func (Toy) Text(id int) string {
	switch {
	case id >= 256:
		return specials()[id-256]
	case id >= 128:
		return "\uFFFD"
	}
	return string(rune(id))
}

// ImageToken returns <|image_pad|>, once for 28 × 28 pixels.
func (Toy) ImageToken(data []byte) (id, n int) {
	size, _, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil { // no image, or none yet
		return 259, 1
	}
	return 259, max(1, size.Width/28) * max(1, size.Height/28)
}

// LogProbs favours small letters and, after some of them, the end of a turn.
func (Toy) LogProbs(ids []int, images [][]byte, from int) [][]float64 {
	h := fnv.New64a()
	for _, image := range images {
		h.Write(image)
	}
	seen := h.Sum64()
	var rows [][]float64
	for i, id := range ids {
		seen = mix(seen ^ uint64(id)*0x9e3779b97f4a7c15)
		if i < from {
			continue
		}
		row := make([]float64, 256+len(specials()))
		sum := 0.0
		for j := range row {
			row[j] = 4*float64(mix(seen+uint64(j))>>11)/(1<<53) - 6
			if j >= 'a' && j <= 'z' || j == 257 {
				row[j] += 6
			}
			sum += math.Exp(row[j])
		}
		for j := range row {
			row[j] -= math.Log(sum)
		}
		rows = append(rows, row)
	}
	return rows
}

// mix is SplitMix64's finaliser (Steele et al. 2014).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
