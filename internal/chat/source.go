package chat

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// What is done to a template before the library reads it.

// compare are the operators that Python chains: a < b < c is a < b and b < c. The library compares a < b with c.
var compare = []tokens.Type{tokens.Equals, tokens.Ne, tokens.LowerThan, tokens.LowerThanOrEqual, tokens.GreaterThan,
	tokens.GreaterThanOrEqual, tokens.In}

// checkSource refuses a template that would exhaust the parser, and comparisons in a chain.
func checkSource(source string, settings *config.Config) error {
	if len(source) > maxSource {
		return fmt.Errorf("%d bytes: want at most %d", len(source), maxSource)
	}
	depth, opening, compared := 0, false, map[int]bool{} // compared: at this depth
	for stream := tokens.LexAll(source, settings); !stream.End(); stream.Next() {
		at, before := stream.Current(), depth
		switch at.Type {
		case tokens.LeftBrace, tokens.LeftBracket, tokens.LeftParenthesis:
			depth++
		case tokens.RightBrace, tokens.RightBracket, tokens.RightParenthesis:
			depth--
		}
		if opening {
			switch {
			case slices.Contains([]string{"for", "if", "macro", "filter", "with", "raw", "generation"}, at.Val):
				depth++
			case strings.HasPrefix(at.Val, "end") && at.Val != "endset":
				depth--
			}
		}
		opening = at.Type == tokens.BlockBegin
		if depth > maxNesting {
			return fmt.Errorf("line %d: more than %d brackets and blocks in each other", at.Line, maxNesting)
		}
		switch {
		case slices.Contains(compare, at.Type) && compared[depth]:
			return fmt.Errorf("line %d: a comparison of a comparison: want \"and\" or brackets between them", at.Line)
		case slices.Contains(compare, at.Type):
			compared[depth] = true
		case depth > before || at.Val == "if" || at.Val == "else" || slices.Contains([]tokens.Type{tokens.And, tokens.Or, tokens.Comma,
			tokens.Colon, tokens.BlockBegin, tokens.VariableBegin}, at.Type):
			compared[depth] = false
		}
	}
	return nil
}

// respell writes + into the tags that do not begin a line and have only spaces before them, back to another tag: lstrip_blocks strips
// before a tag that begins its line, the library before these too ("{% if x %} {% endif %}"). To it None is no name, and {} is true: they
// become none and dict().
func respell(source string, settings *config.Config) string {
	source = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(source) // as the lexer does before it counts
	var out strings.Builder
	written, end, lineStart := 0, 0, true // end: of the tag before
	brace := -1                           // where the token before is {
	write := func(at *tokens.Token, from int, text string) {
		out.WriteString(source[written:from] + text)
		written = at.Pos + len(at.Val)
	}
	for stream := tokens.LexAll(source, settings); !stream.End(); stream.Next() {
		at := stream.Current()
		switch at.Type {
		case tokens.BlockBegin, tokens.CommentBegin:
			between := source[end:at.Pos]
			if between != "" && !lineStart && strings.Trim(between, " \t") == "" && len(at.Val) == 2 {
				write(at, at.Pos, at.Val+"+")
			}
		case tokens.LeftBrace:
			brace = at.Pos
		case tokens.RightBrace:
			if brace >= 0 {
				write(at, brace, "dict()")
			}
		case tokens.Name:
			if at.Val == "None" {
				write(at, at.Pos, "none")
			}
		case tokens.BlockEnd, tokens.CommentEnd, tokens.VariableEnd:
			end = at.Pos + len(at.Val)
			lineStart = at.Type != tokens.VariableEnd && at.Val[0] != '+' && strings.HasPrefix(source[end:], "\n") // which trim_blocks takes
			if lineStart {
				end++
			}
		}
		if at.Type != tokens.LeftBrace {
			brace = -1
		}
	}
	return out.String() + source[written:]
}
