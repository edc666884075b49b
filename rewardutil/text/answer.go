package text

import "strings"

// Answer returns the part of a completion that is judged: the text inside the first <answer>…</answer> that
// follows a </think>, else inside the first pair anywhere, else the whole completion; outer white space
// is removed. All text rewards use it, for completions and for references.
func Answer(completion string) string {
	_, after, _ := strings.Cut(completion, "</think>")
	for _, part := range []string{after, completion} {
		if inside, ok := between(part, "<answer>", "</answer>"); ok {
			return strings.TrimSpace(inside)
		}
	}
	return strings.TrimSpace(completion)
}

// HasAnswer reports whether a completion has an <answer>…</answer>.
func HasAnswer(completion string) bool {
	_, ok := between(completion, "<answer>", "</answer>")
	return ok
}

// between returns the text between the first open and the next end.
func between(s, open, end string) (string, bool) {
	if _, s, ok := strings.Cut(s, open); ok {
		if inside, _, ok := strings.Cut(s, end); ok {
			return inside, true
		}
	}
	return "", false
}
