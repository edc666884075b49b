package lvlm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"slices"
	"strings"
	"time"

	"fulcrum/internal/digest"
)

// What the probe takes for equal, in nats. Servers compute in half precision and in batches of changing sizes.
const (
	closeTo  = 0.15 // of one token's log-probability
	relative = 0.03 // of its size
)

// first returns the first token of the answer.
func (a probed) first() told { return a.e.tokens[len(a.e.tokens)-len(a.l.Tokens)] }

// cached is the likeliest reason why numbers depend on other requests.
const cached = "is a prefix cache on? Start vLLM with --no-enable-prefix-caching, SGLang with --disable-radix-cache"

// apart returns how far two log-probabilities of one token lie from each other, in units of the tolerance.
func apart(a, b float64) float64 {
	return math.Abs(a-b) / (closeTo + relative*math.Max(math.Abs(a), math.Abs(b)))
}

// alike reports whether two log-probabilities of one token may be the same number.
func alike(a, b float64) bool { return apart(a, b) <= 1 }

// probed is what the probe knows of its prompt.
type probed struct {
	name string
	p    Prompt
	l    Likelihood
	e    echo
}

// probe asks known prompts before anything is scored, one at a time, and refuses a server that cannot score or whose numbers
// are not those of the prompts: an error says what it found.
func (s *server) probe(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.client.Slow = 3 * time.Second // an answer that has begun comes to its end
	defer func() { s.client.Slow = 0 }()
	base, err := s.question()
	if err != nil {
		return err
	}
	if err := s.learn(ctx, base); err != nil {
		return err
	}
	asked, err := s.variants(ctx, base)
	if err != nil {
		return err
	}
	first := asked[0]
	if err := differ(asked); err != nil {
		return err
	}
	for _, again := range slices.Backward(asked) { // once more, in another order
		if err := s.repeated(ctx, again); err != nil {
			return err
		}
	}
	if err := s.lengths(ctx, base); err != nil {
		return err
	}
	if err := s.agrees(ctx, asked); err != nil {
		return err
	}
	if err := s.findTeacher(ctx, asked); err != nil {
		return err
	}
	s.first, s.known = first.e.first, first.l
	s.id.Revision = strings.Join(slices.DeleteFunc([]string{s.id.Revision, first.e.revision}, func(t string) bool { return t == "" }),
		" ")
	if s.id.Template == "" { // how the server rendered a known prompt
		s.id.Template = digest.Of(fmt.Append(nil, first.e.ids))
	}
	return nil
}

// question returns the prompt that is asked: one demonstration and a query, with pictures where the server sees them.
func (s *server) question() (Prompt, error) {
	p := Prompt{
		Shots: []Example{{Question: "What colour is the square?", Answer: "red"}},
		Query: Example{Question: "What colour is the circle?", Answer: "blue"},
	}
	if s.opt.Backend == "completions" || !s.opt.Images {
		return p, nil
	}
	var err error
	if p.Shots[0].Image, err = picture(colours[0], 8); err == nil {
		p.Query.Image, err = picture(colours[1], 20)
	}
	return p, err
}

// colours are those of the pictures: red and blue.
var colours = [2]color.RGBA{{R: 220, G: 30, B: 30, A: 255}, {R: 20, G: 40, B: 230, A: 255}}

// picture draws a square of one colour on white, 112 × 112 pixels, as a data: URL.
func picture(c color.RGBA, margin int) (string, error) {
	const side = 112
	img := image.NewRGBA(image.Rect(0, 0, side, side))
	for y := range side {
		for x := range side {
			img.Set(x, y, color.White)
			if min(x, y, side-1-x, side-1-y) >= margin {
				img.Set(x, y, c)
			}
		}
	}
	var b bytes.Buffer
	err := png.Encode(&b, img)
	return dataURL(b.Bytes()), err
}

// learn finds the text that ends a turn where only the server knows its template, and what completions should ask otherwise.
func (s *server) learn(ctx context.Context, p Prompt) error {
	if c, ok := s.protocol.(completions); ok {
		return c.learn(ctx, p)
	}
	v, ok := s.protocol.(vllm)
	if !ok || s.rendering.ending != "" {
		return nil
	}
	body, err := v.body(p) // of a prompt whose last turn the template itself ends: what it writes behind the answer shows there
	body.MaxTokens, body.PromptLogProbs, body.Continue = 1, 1, false
	if err != nil {
		return err
	}
	reply, err := s.post(ctx, "/v1/chat/completions", body)
	if err != nil {
		return err
	}
	e, err := v.scored(reply, len(reply))
	if err == nil {
		s.rendering.ending, err = ends(e.tokens, p.Query.Answer)
	}
	return err
}

func (s *server) probeScore(ctx context.Context, p Prompt) (Likelihood, echo, error) {
	e, err := s.score(ctx, p)
	if err != nil {
		return Likelihood{}, e, err
	}
	if e.first != nil && e.first.logProb != nil && *e.first.logProb != 0 {
		return Likelihood{}, e, fmt.Errorf("the first token of the prompt has a log-probability, %.4g, though nothing precedes it: its "+
			"numbers are shifted", *e.first.logProb)
	}
	l, err := s.likelihood(p, e)
	if err == nil {
		err = l.check()
	}
	return l, e, err
}

// variants scores the base and what differs from it in one thing each.
func (s *server) variants(ctx context.Context, base Prompt) ([]probed, error) {
	changed := func(name string, change func(p *Prompt)) probed {
		p := Prompt{Shots: slices.Clone(base.Shots), Query: base.Query}
		change(&p)
		return probed{name: name, p: p}
	}
	all := []probed{
		changed("the prompt", func(*Prompt) {}),
		changed("the answer", func(p *Prompt) { p.Query.Answer = "a green dog" }),
		changed("the question", func(p *Prompt) { p.Query.Question = "How many dogs are there?" }),
		changed("the demonstration's answer", func(p *Prompt) { p.Shots[0].Answer = "two" }),
	}
	if base.Query.Image != "" {
		all = append(all, changed("the query's image", func(p *Prompt) { p.Query.Image = p.Shots[0].Image }),
			changed("the demonstration's image", func(p *Prompt) { p.Shots[0].Image = p.Query.Image }))
	}
	for i := range all {
		var err error
		if all[i].l, all[i].e, err = s.probeScore(ctx, all[i].p); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// differ checks that the likelihood depends on everything that it depends on.
func differ(asked []probed) error {
	first := asked[0].l.LogProbs
	if !slices.ContainsFunc(first, func(v float64) bool { return v != 0 }) {
		return errors.New("every token of an answer has probability 1: it does not score the prompt")
	}
	for _, other := range asked[1:] {
		if slices.EqualFunc(first, other.l.LogProbs, func(a, b float64) bool { return math.Abs(a-b) < 1e-6 }) {
			return fmt.Errorf("the likelihood stays %.4v when %s changes: the server drops it", first, other.name)
		}
	}
	a, b := asked[0].first(), asked[1].first()
	if first[0] == asked[1].l.LogProbs[0] && !a.is(b) {
		return fmt.Errorf("two answers that begin otherwise have one log-probability, %.4g: it tells the likeliest token's, not the prompt's own",
			first[0])
	}
	return nil
}

// repeated asks a prompt again, between others than the first time.
func (s *server) repeated(ctx context.Context, a probed) error {
	second, _, err := s.probeScore(ctx, a.p)
	if err != nil || second.alike(a.l) {
		return err
	}
	third, _, err := s.probeScore(ctx, a.p)
	if err != nil {
		return err
	}
	if !third.alike(second) {
		return fmt.Errorf("it gives other numbers each time that it is asked (%s: %.4v, %.4v, %.4v)", a.name, a.l.LogProbs, second.LogProbs,
			third.LogProbs)
	}
	return fmt.Errorf("its numbers depend on what was asked before (%s: %.4v, then %.4v): %s", a.name, a.l.LogProbs, second.LogProbs, cached)
}

// alike reports whether two likelihoods may be of one prompt.
func (l Likelihood) alike(other Likelihood) bool { return l.apart(other) <= 1 }

// apart returns how far two likelihoods lie from each other at their most different token, in units of the tolerance.
func (l Likelihood) apart(other Likelihood) float64 {
	if len(l.LogProbs) != len(other.LogProbs) {
		return math.Inf(1)
	}
	most := 0.0
	for i, v := range l.LogProbs {
		most = max(most, apart(v, other.LogProbs[i]))
	}
	return most
}

// lengths checks that each further demonstration makes the prompt as much longer: one that is cut does not grow. A server that
// refuses a long prompt is honest.
func (s *server) lengths(ctx context.Context, base Prompt) error {
	shot := base.Shots[0]
	shot.Image = ""
	var lengths []int
	const step = 4 // demonstrations
	for n := step; n <= 3*step; n += step {
		e, err := s.score(ctx, Prompt{Shots: slices.Repeat([]Example{shot}, n), Query: base.Query})
		if err != nil {
			return nil
		}
		lengths = append(lengths, e.length)
	}
	if lengths[1]-lengths[0] != lengths[2]-lengths[1] || lengths[1] == lengths[0] {
		return fmt.Errorf("prompts of %d, %d and %d equal demonstrations have %d, %d and %d tokens: it cuts them", step, 2*step, 3*step,
			lengths[0], lengths[1], lengths[2])
	}
	return nil
}

const top = 20 // of the likeliest tokens that are asked for: as many as vLLM gives unless it is told otherwise

// certain looks at a first token that a server scores as certain: an honest one takes it itself when it answers. Later tokens of an
// answer are certain every so often, as the second half of a word is, and first ones hardly ever.
func (s *server) certain(ctx context.Context, p Prompt, l Likelihood, e echo) error {
	const sure = -1e-5 // nats: float32 rounds the logarithm of what is nearer to 1
	if l.LogProbs[0] < sure {
		return nil
	}
	own, err := s.answer(ctx, p, top)
	if err != nil || len(own.tokens) == 0 { // it may tell no log-probabilities of its answers
		return err
	}
	if err := own.tokens[0].allows(l, e.tokens[len(e.tokens)-len(l.Tokens)]); err != nil {
		return lie{fmt.Errorf("the answer %q: %w", p.Query.Answer, err)}
	}
	return nil
}

// agrees compares scores with what the server says when it answers the same prompts itself, until a token of an answer of its
// own could be compared.
func (s *server) agrees(ctx context.Context, asked []probed) error {
	for _, a := range asked {
		own, err := s.answer(ctx, a.p, top)
		if err != nil {
			return err
		}
		if err := own.check(); err != nil || len(own.tokens) == 0 { // it may tell no log-probabilities of its answers
			return err
		}
		if err := own.tokens[0].allows(a.l, a.first()); err != nil {
			return fmt.Errorf("the answer %q: %w", a.p.Query.Answer, err)
		}
		if strings.TrimSpace(own.text) == "" {
			continue
		}
		if compared, err := s.repeats(ctx, a.p, own); compared || err != nil {
			return err
		}
	}
	return nil
}

// repeats scores the server's own answer. Nothing is compared where the text of its tokens is spelt with others.
func (s *server) repeats(ctx context.Context, p Prompt, own greedy) (compared bool, err error) {
	p.Query.Answer = own.text
	e, n := echo{}, 0
	if raw, ok := s.protocol.(rawScorer); ok { // as it was said, with its spaces
		var text string
		p.Query.Answer = ""
		if text, err = s.rendering.render(p); err != nil {
			return false, err
		}
		path, body, err := raw.scoringText(p, text+own.raw)
		if err != nil {
			return false, err
		}
		if e, err = s.read(ctx, path, body, len(own.raw)+1); err != nil {
			return false, err
		}
		if n, err = spelled(e.tokens, own.raw); err != nil {
			return false, nil
		}
	} else {
		var l Likelihood
		if l, e, err = s.probeScore(ctx, p); err != nil {
			return false, nil
		}
		n = len(l.Tokens)
	}
	tail := e.tokens[len(e.tokens)-n:]
	for i := 0; i < min(len(tail), len(own.tokens)); i++ {
		t := own.tokens[i]
		if !t.is(tail[i]) || t.logProb == nil || tail[i].logProb == nil {
			break
		}
		if compared = true; !alike(*t.logProb, *tail[i].logProb) {
			return true, fmt.Errorf("token %d of its own answer %q has the log-probability %.4g when it answers and %.4g when the answer is "+
				"scored: the numbers are shifted, or of another prompt", i+1, own.text, *t.logProb, *tail[i].logProb)
		}
	}
	return compared, nil
}

// is reports whether two tokens are the same: by their ids, or where one has none by their texts.
func (t told) is(other told) bool {
	if t.id >= 0 && other.id >= 0 {
		return t.id == other.id
	}
	return t.text == other.text
}

// fullMass is what probabilities of different tokens sum to at most, rounded in half precision.
const fullMass = 1.02

// mass is the probability of a token and of the likeliest at its place.
func (t told) mass() float64 {
	sum, own := 0.0, t.logProb != nil
	for _, other := range t.top {
		if other.logProb != nil {
			sum += math.Exp(*other.logProb)
			own = own && !other.is(t)
		}
	}
	if own {
		sum += math.Exp(*t.logProb)
	}
	return sum
}

// check refuses log-probabilities that are none: the probabilities of a few tokens sum to more than 1.
func (g greedy) check() error {
	for i, t := range g.tokens {
		if sum := t.mass(); sum > fullMass {
			return fmt.Errorf("the probabilities of %d tokens at place %d of its answer sum to %.3f: its logarithms are not to base e", len(t.top),
				i+1, sum)
		}
	}
	return nil
}

// allows reports a first token of a scored answer that cannot be true beside the likeliest ones at its place.
func (t told) allows(l Likelihood, own told) error {
	least := math.Inf(1)
	for _, other := range t.top {
		if other.logProb == nil {
			continue
		}
		least = min(least, *other.logProb)
		if !other.is(own) {
			continue
		}
		if !alike(*other.logProb, l.LogProbs[0]) {
			return fmt.Errorf("its first token has the log-probability %.4g when the server answers and %.4g when it scores: the numbers are "+
				"shifted, or of another prompt", *other.logProb, l.LogProbs[0])
		}
		return nil
	}
	if len(t.top) > 1 && l.LogProbs[0] > least+closeTo+relative*math.Abs(least) {
		return fmt.Errorf("its first token scores %.4g, more than one of the %d likeliest, %.4g, and is none of them: the numbers are "+
			"shifted, or of another prompt", l.LogProbs[0], len(t.top), least)
	}
	return nil
}
