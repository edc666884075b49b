package chat

import (
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// generation is {% generation %}…{% endgeneration %} of transformers, which tells the assistant's own tokens apart (SmolLM3): the text
// inside, with a scope of its own.
type generation struct {
	at   *tokens.Token
	body *nodes.Wrapper
}

func parseGeneration(p, args *parser.Parser) (nodes.ControlStructure, error) {
	g := &generation{at: p.Current()}
	if !args.End() {
		return nil, args.Error("generation takes no arguments", nil)
	}
	var end *parser.Parser
	var err error
	if g.body, end, err = p.WrapUntil("endgeneration"); err == nil && !end.End() {
		err = end.Error("endgeneration takes no arguments", nil)
	}
	return g, err
}

// Position and String describe the statement for the library's errors.
func (g *generation) Position() *tokens.Token { return g.at }
func (g *generation) String() string          { return "generation" }

// Execute writes the body.
func (g *generation) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	return r.Inherit().ExecuteWrapper(g.body)
}
