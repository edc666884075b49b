package configs

import "strings"

// Quoted returns text as one string of the override grammar.
func Quoted(text string) string {
	return "'" + strings.ReplaceAll(strings.ReplaceAll(text, `\'`, `\\'`), "'", `\'`) + "'"
}
