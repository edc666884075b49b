package configs

import (
	_ "embed"
	"reflect"
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

// helpOf returns what an option means: its help tag (options of tests), else the field's doc comment.
func helpOf(owner reflect.Type, f reflect.StructField) string {
	if text := f.Tag.Get("help"); text != "" {
		return text
	}
	return helpTexts()[owner.PkgPath()+"."+owner.Name()+"."+f.Name]
}
