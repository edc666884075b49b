package lvlm

import (
	"errors"
	"fmt"
	"strings"

	"fulcrum/internal/list"
)

// likelihood takes the answer's tokens from the end of a scored prompt. Where the model's tokenizer is here, the prompt is
// compared token by token; else the last tokens must spell the answer and the text that ends it.
func (s *server) likelihood(p Prompt, e echo) (Likelihood, error) {
	if len(e.tokens) == 0 {
		return Likelihood{}, errors.New("it tells no tokens of the prompt")
	}
	if s.first != nil && e.first != nil && (e.first.id != s.first.id || e.first.text != s.first.text) {
		return Likelihood{}, fmt.Errorf("the prompt begins with token %d %q, others with %d %q: it is cut", e.first.id, e.first.text, s.first.id,
			s.first.text)
	}
	n, want, err := 0, p.Query.Answer+s.rendering.ending, error(nil)
	if s.rendering.tokens != nil {
		n, err = s.compared(p, e)
	} else {
		if s.rendering.template != nil {
			var from int
			want, from, err = s.rendering.texts(p)
			want = want[from:]
		}
		if err == nil {
			n, err = spelled(e.tokens, want)
		}
	}
	if err != nil {
		return Likelihood{}, err
	}
	var l Likelihood
	for _, t := range e.tokens[len(e.tokens)-n:] {
		if t.logProb == nil {
			return Likelihood{}, fmt.Errorf("token %d %q of the answer has no log-probability", t.id, t.text)
		}
		if sum := t.mass(); sum > fullMass {
			return Likelihood{}, lie{fmt.Errorf("token %d %q of the answer has the log-probability %.4g, and with the likeliest at its place the "+
				"probabilities sum to %.3f: no softmax gives that", t.id, t.text, *t.logProb, sum)}
		}
		l.Tokens, l.LogProbs = append(l.Tokens, t.id), append(l.LogProbs, *t.logProb)
	}
	return l, nil
}

// compared holds the server's tokens against ours and returns how many are the answer's.
func (s *server) compared(p Prompt, e echo) (int, error) {
	ours, n, err := s.rendering.expected(p)
	if err != nil {
		return 0, err
	}
	most := len(ours) + s.rendering.lacks(ours)
	if len(e.tokens) < n || e.length < len(ours) || e.tokens[0].id < 0 && e.length > most { // without ids, no image is expanded
		return 0, fmt.Errorf("the prompt has %d tokens, the first %q, and %d of them are told: lvlm.path's template has %d, %d of the answer: "+
			"it is cut, or begins with a further one", e.length, e.tokens[0].text, len(e.tokens), len(ours), n)
	}
	tail := e.tokens[len(e.tokens)-n:]
	if tail[0].id < 0 {
		if got, want := joined(tail), s.rendering.tokens.Decode(ours[len(ours)-n:], false); got != want {
			return 0, fmt.Errorf("the prompt ends in %q, want %q: another tokenizer, or another template than lvlm.path's", got, want)
		}
		return n, nil
	}
	ids := e.ids
	if ids == nil {
		ids = list.Map(e.tokens, func(t told) int { return t.id })
		if len(ids) < e.length { // the server told the end only
			ours, ids = ours[len(ours)-n:], ids[len(ids)-n:]
		}
	}
	return n, s.rendering.same(ours, ids)
}

// same compares the ids of a prompt with a server's, where an image is any number of them.
func (r *rendering) same(ours []int64, ids []int) error {
	at := 0
	for i, want := range ours {
		if want == r.image && i+1 < len(ours) {
			for at < len(ids) && int64(ids[at]) != ours[i+1] {
				at++
			}
			continue
		}
		if at >= len(ids) || int64(ids[at]) != want {
			got := "nothing"
			if at < len(ids) {
				got = fmt.Sprintf("%d %q", ids[at], r.tokens.Decode([]int64{int64(ids[at])}, false))
			}
			return fmt.Errorf("token %d of the prompt is %s, want %d %q: another tokenizer or template than lvlm.path's, or a cut prompt",
				at+1, got, want, r.tokens.Decode([]int64{want}, false))
		}
		at++
	}
	if at != len(ids) {
		return fmt.Errorf("the prompt goes on behind the end of the answer, with %d tokens", len(ids)-at)
	}
	return nil
}

// spelled returns how many of the last tokens spell a text. White space before it may be missing: some tokenizers do not tell it.
func spelled(tokens []told, want string) (int, error) {
	got := ""
	for n := 1; n <= len(tokens); n++ {
		t := tokens[len(tokens)-n]
		got = t.text + got
		bare := strings.TrimLeft(got, " ")
		switch {
		case strings.ContainsRune(t.text, '\uFFFD'):
			return 0, errors.New("its tokens cut letters in pieces, so their texts do not tell where the answer begins: give the model's folder, " +
				"lvlm.path, so that ids do")
		case bare == strings.TrimLeft(want, " "):
			for n < len(tokens) && len(got) < len(want) && tokens[len(tokens)-n-1].text == " " { // a space may be a token of its own
				n, got = n+1, " "+got
			}
			return n, nil
		case !strings.HasSuffix(want, got):
			return 0, fmt.Errorf("the prompt ends in %q, want %q: its template or its tokens are not what it was asked to score", lastOf(tokens),
				want)
		}
	}
	return 0, fmt.Errorf("the prompt ends in %q, want %q", lastOf(tokens), want)
}

func joined(tokens []told) string {
	return strings.Join(list.Map(tokens, func(t told) string { return t.text }), "")
}

// lastOf returns the text of the last few tokens.
func lastOf(tokens []told) string { return joined(tokens[max(0, len(tokens)-8):]) }

// ends returns the text that follows an answer in a prompt that the server's template ended: the text that ends a turn.
func ends(tokens []told, answer string) (string, error) {
	text := joined(tokens)
	at := strings.LastIndex(text, answer)
	if at < 0 {
		return "", fmt.Errorf("the prompt does not hold the answer %q: it ends in %q", answer, lastOf(tokens))
	}
	rest := text[at+len(answer):]
	if end := strings.TrimRight(rest, " \t\r\n"); end != "" {
		return end, nil
	}
	if rest == "" {
		return "", errors.New("its template ends an answer with nothing: give one that does, lvlm.template")
	}
	return rest, nil
}
