package configs

import (
	"cmp"
	_ "embed"
	"strings"
	"sync"
)

//go:generate go test -count=1 -run TestOptionHelpIsCurrent -update .

//go:embed option_help.txt
var optionHelp string

// helpTexts maps import path.Type.Field to the field's doc comment in the sources.
var helpTexts = sync.OnceValue(func() map[string]string {
	texts := map[string]string{}
	for line := range strings.Lines(optionHelp) {
		field, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		texts[field] = text
	}
	return texts
})

// help returns what a key means: what its table says, its help tag (options of tests), else its field's doc comment. It
// is looked up when somebody asks, as most commands never do.
func (f *field) help() string {
	if text := cmp.Or(f.said, f.member.Tag.Get("help")); text != "" || f.owner == nil {
		return text
	}
	return helpTexts()[f.owner.PkgPath()+"."+f.owner.Name()+"."+f.member.Name]
}
