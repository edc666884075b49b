// Package lvlm asks a frozen vision-language model two things about a question with demonstrations before it: how likely a
// given answer is, token by token, and what the model itself would answer. No tensors here: the model runs in this process
// (experiments opens it), or behind a server (vLLM, SGLang, anything with /v1/completions that honours echo).
package lvlm

import (
	"context"
	"slices"
)

// Example is a question about an image with an answer: a demonstration, or the query itself.
type Example struct {
	ID       int64  // of its record; it is no part of what is asked, nor of the store's key
	Image    string // a file or a data: URI; "" = none
	Question string
	Answer   string // a demonstration's answer; of a query the answer to score, "" where the model is to answer
}

// Prompt is what the model reads: demonstrations in their order, then the query.
type Prompt struct {
	Shots []Example
	Query Example
}

// WithoutImages is the prompt's texts.
func (p Prompt) WithoutImages() Prompt {
	p.Shots = slices.Clone(p.Shots)
	for i := range p.Shots {
		p.Shots[i].Image = ""
	}
	p.Query.Image = ""
	return p
}

// Likelihood is how likely a given answer is: one entry a token of it, the token that ends the turn last.
type Likelihood struct {
	Tokens   []int     // ids; -1 where a server does not tell them
	LogProbs []float64 // nats, each given all before it
}

// Reply is what the model answers itself.
type Reply struct {
	Text   string
	Tokens int // of the prompt, its pictures' included; 0 = not told
}

// Identity says whose numbers these are. It stands in every file that results, and its digest is part of the store's key.
type Identity struct {
	Backend   string `json:"backend"`             // local, vllm, sglang or completions
	Model     string `json:"model"`               // the server's name of it, or the folder's digest
	Engine    string `json:"engine,omitempty"`    // the server's program and version; local: what it computes in, if not float32
	Template  string `json:"template"`            // digest of the template
	ImageSize int    `json:"image_size"`          // pixels; 0 = as in the file
	Revision  string `json:"revision,omitempty"`  // system_fingerprint, or the digest of the weights
	TextOnly  bool   `json:"text_only,omitempty"` // no prompt showed its images; no part of the key, which has what each showed
}

// Scorer is a frozen vision-language model. Answers come in the prompts' order; a failure names the prompt.
type Scorer interface {
	Identity() Identity
	// Score returns the likelihood of each prompt's Query.Answer.
	Score(ctx context.Context, prompts []Prompt) ([]Likelihood, error)
	// Answer returns the model's greedy answers, of at most Options.MaxNewTokens tokens.
	Answer(ctx context.Context, prompts []Prompt) ([]Reply, error)
	Close() error
}
