package text

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// ptbPatterns are tried in order at each place of a lower-case text.
var ptbPatterns = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:` + strings.Join([]string{
		`(?:https?://|www\.)[^\s"<>]*[^\s"<>.,;:!?')]`, // addresses
		`[\w.+-]+@[\w-]+(?:\.[\w-]+)+`,                 // of mail
		`\.\.+`,                                        // …
		`\d{1,2}:\d{2}`,                                // times
		`\d+/\d+`,                                      // fractions
		`[-+]?\d*(?:[.,]\d+)+`,                         // 1,000 and .5
		`(?:\p{L}\.)(?:\p{L}\.)+`,                      // u.s.
		`(?:` + abbreviations + `)\.`,
		`<[a-z/][^<>\s]*>`, `'n'`, `y'`, `[!?]{2,}`, `'(?:em|tis|twas|til|cause|n)\b`, `'\d\ds?\b`,
		`[\p{L}\p{M}\p{N}_]+(?:-[\p{L}\p{M}\p{N}_]+)*(?:/[\p{L}\p{M}\p{N}]+(?:-[\p{L}\p{M}]+)*){1,2}`, // red/white
		`[\p{L}\p{M}\p{N}_]*(?:[-&]?[\p{L}\p{M}\p{N}_]+)+n't\b`,
		`(?:o|d|l|c)'\p{L}[\p{L}\p{M}\p{N}-]*`,
		`[\p{L}\p{M}\p{N}_]+(?:[-&.][\p{L}\p{M}\p{N}_]+)*`, // words and compounds, a.b too
		`--+`, `'(?:s|m|d|re|ve|ll)\b`, `''`, "``",
		`(?s).`,
	}, "|") + `)`)
})

const abbreviations = `mr|mrs|ms|dr|prof|st|jr|sr|gen|col|capt|lt|sgt|rev|hon|gov|sen|rep|inc|co|corp|ltd|vs|etc|ave|blvd|rd|mt|ft|` +
	`dept|univ|jan|feb|aug|sept|sep|oct|nov|dec|approx|no`

// ptbDropped is what the evaluation of COCO captions leaves out. Brackets stay: it lists them in capitals, the tokens are lower-case.
func ptbDropped() []string {
	return []string{`"`, "''", "'", "``", "`", ".", "?", "!", ",", ":", "-", "--", "...", ";"}
}

// PTBTokens splits a caption as the evaluation of COCO captions does: the Penn Treebank's rules as Stanford's PTBTokenizer has them
// for plain English, in lower case, without punctuation. don't is do n't, a dog's is a dog 's, cannot is can not, red/white one token.
func PTBTokens(caption string) []string {
	rest := strings.NewReplacer("’", "'", "‘", "`", "“", "``", "”", "''", "…", "...", "–", "--", "—", "--", "\u00a0", " ").
		Replace(Lower(caption))
	var out []string
	for {
		if rest = strings.TrimSpace(rest); rest == "" {
			return out
		}
		token := ptbPatterns().FindString(rest)
		rest = rest[len(token):]
		switch {
		case token == "no." && strings.Trim(strings.TrimSpace(rest)[:min(1, len(strings.TrimSpace(rest)))], "0123456789") != "",
			token == "no." && strings.TrimSpace(rest) == "":
			token = "no" // it ends a sentence
		case strings.Trim(token, ".") == "" && len(token) > 1:
			token = "..."
		case strings.Trim(token, "-") == "" && len(token) > 1:
			token = "--"
		}
		for _, t := range ptbParts(token) {
			if !slices.Contains(ptbDropped(), t) {
				out = append(out, t)
			}
		}
	}
}

// ptbParts takes a word's contraction apart and writes brackets and slashes as the treebank does.
func ptbParts(token string) []string {
	if name, ok := map[string]string{"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-"}[token]; ok {
		return []string{name}
	}
	if at, ok := map[string]int{"cannot": 3, "gonna": 3, "gotta": 3, "wanna": 3, "lemme": 3, "gimme": 3}[token]; ok {
		return []string{token[:at], token[at:]}
	}
	if word, ok := strings.CutSuffix(token, "n't"); ok && word != "" {
		return []string{word, "n't"}
	}
	return []string{token}
}
