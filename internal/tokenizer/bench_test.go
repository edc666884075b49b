package tokenizer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
)

func BenchmarkOpen(b *testing.B) {
	folder := golden.Shared(b, "qwen2_5_vl", "tokenizer")
	for b.Loop() {
		if _, err := Open(folder); err != nil {
			b.Fatal(err)
		}
	}
}

// English prose with markup, and a text of many scripts; the cache is warm as in training.
func BenchmarkEncode(b *testing.B) {
	folder := golden.Shared(b, "qwen2_5_vl", "tokenizer")
	tok, err := Open(folder)
	if err != nil {
		b.Fatal(err)
	}
	prose, err := os.ReadFile(filepath.Join(filepath.Dir(folder), "README.md"))
	if err != nil {
		b.Fatal(err)
	}
	var c cases
	golden.JSON(b, filepath.Join(folder, "tokenizer_cases.json"), &c)
	var scripts strings.Builder
	for _, x := range c.Cases {
		scripts.WriteString(x.Text)
	}
	for name, text := range map[string]string{"prose": string(prose), "scripts": scripts.String(),
		"one line": strings.Repeat("ab", 50000)} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				tok.Encode(text)
			}
		})
	}
}
