package configs

import (
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"
)

// Scalars of YAML files, by the rules of PyYAML (YAML 1.1) with OmegaConf's changes, and numbers
// printed as Python prints them.

// plainScalar gives an unquoted YAML scalar its type.
func plainScalar(s string) *Node {
	switch s {
	case "", "~", "null", "Null", "NULL":
		return newNull()
	case "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE":
		return newBool(true)
	case "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE":
		return newBool(false)
	}
	if c := s[0]; c == '-' || c == '+' || c == '.' || c >= '0' && c <= '9' {
		if n := yamlFloat(s); n != nil {
			return n
		}
		if n := yamlInt(s); n != nil {
			return n
		}
	}
	return nil // text
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// span counts the leading bytes of s that are in set.
func span(s, set string) int {
	i := 0
	for i < len(s) && strings.IndexByte(set, s[i]) >= 0 {
		i++
	}
	return i
}

const digits = "0123456789"

// yamlInt reads an integer as PyYAML does: 0b1, 017, 10, 0x1F or sexagesimal 12:30, with a sign and underscores.
func yamlInt(s string) *Node {
	if !yamlInteger.MatchString(s) {
		return nil
	}
	sign, body := splitSign(strings.ReplaceAll(s, "_", ""))
	switch {
	case strings.HasPrefix(body, "0b"):
		return intNode(sign, body[2:], 2)
	case strings.HasPrefix(body, "0x"):
		return intNode(sign, body[2:], 16)
	case strings.Contains(body, ":"):
		return intNode(sign, sexagesimal(body), 10)
	case len(body) > 1 && body[0] == '0':
		return intNode(sign, body[1:], 8)
	}
	return intNode(sign, body, 10)
}

// The regular expressions are PyYAML's for integers and OmegaConf's for floats.
var (
	yamlInteger = regexp.MustCompile(`^(?:[-+]?0b[01_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+` +
		`|[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+)$`)
	yamlNumber = regexp.MustCompile(`^(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+` +
		`|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$`)
)

func splitSign(s string) (sign, rest string) {
	if s != "" && (s[0] == '-' || s[0] == '+') {
		if s[0] == '-' {
			sign = "-"
		}
		return sign, s[1:]
	}
	return "", s
}

// sexagesimal returns the decimal digits of 12:30:05.
func sexagesimal(s string) string {
	total := new(big.Int)
	for part := range strings.SplitSeq(s, ":") {
		v, _ := new(big.Int).SetString(part, 10) // digits, by the regular expressions
		total.Add(total.Mul(total, big.NewInt(60)), v)
	}
	return total.String()
}

// intNode makes an Int of any size in canonical form.
func intNode(sign, text string, base int) *Node {
	if v, err := strconv.ParseInt(sign+text, base, 64); err == nil {
		return newInt(v)
	}
	v, ok := new(big.Int).SetString(sign+text, base)
	if !ok {
		return nil
	}
	return &Node{Kind: Int, Text: v.String()}
}

// yamlFloat reads the float spellings of OmegaConf's loader: 1. 1.5 1e3 .5 .inf .nan and 1:30.5.
func yamlFloat(s string) *Node {
	if !yamlNumber.MatchString(s) {
		return nil
	}
	sign, body := splitSign(strings.ReplaceAll(s, "_", ""))
	if name := strings.ToLower(body); name == ".inf" || name == ".nan" {
		return parseFloatText(sign + name[1:])
	}
	if whole, rest, ok := strings.Cut(body, "."); ok && strings.Contains(whole, ":") {
		body = sexagesimal(whole) + "." + rest
	}
	return parseFloatText(sign + body)
}

// parseFloatText reads a decimal number with underscores; too large is infinite, as in Python. A
// nan may have a sign, which says nothing.
func parseFloatText(s string) *Node {
	if _, body := splitSign(s); strings.EqualFold(body, "nan") {
		return newFloat(math.NaN())
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	if err != nil && !math.IsInf(f, 0) {
		return nil
	}
	return newFloat(f)
}

// pyFloat prints f as Python's repr does: 0.001, 1e-05, 1000.0, 1e+16, inf, nan.
func pyFloat(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	}
	if abs := math.Abs(f); abs != 0 && (abs < 1e-4 || abs >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64) // exponents have two digits in both languages
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if strings.IndexByte(s, '.') < 0 {
		s += ".0"
	}
	return s
}

// yamlFloatText prints f as PyYAML does: 1.0e-10, .inf.
func yamlFloatText(f float64) string {
	s := pyFloat(f)
	switch s {
	case "inf", "nan":
		return "." + s
	case "-inf":
		return "-.inf"
	}
	if e := strings.IndexByte(s, 'e'); e >= 0 && strings.IndexByte(s, '.') < 0 {
		s = s[:e] + ".0" + s[e:]
	}
	return s
}

// pyStr is Python's str() of a value: True, None, 0.003, [1, 'a'], {'k': 1}.
func (n *Node) pyStr() string {
	if n.Kind == String {
		return n.Text
	}
	return n.pyRepr()
}

func (n *Node) pyRepr() string {
	switch n.Kind {
	case Null:
		return "None"
	case Bool:
		if n.Bool {
			return "True"
		}
		return "False"
	case Int:
		return n.Text
	case Float:
		return pyFloat(n.Num)
	case String:
		return pyQuote(n.Text)
	}
	var b strings.Builder
	n.pyContainer(&b, func(i int) { b.WriteString(n.Vals[i].pyRepr()) })
	return b.String()
}

// pyContainer writes a list or a map as Python's repr() prints it; value writes what stands at i.
func (n *Node) pyContainer(b *strings.Builder, value func(i int)) {
	open, end := "[", "]"
	if n.Kind == Map {
		open, end = "{", "}"
	}
	b.WriteString(open)
	for i := range n.Vals {
		if i > 0 {
			b.WriteString(", ")
		}
		if n.Kind == Map {
			b.WriteString(n.Keys[i].node().pyRepr() + ": ")
		}
		value(i)
	}
	b.WriteString(end)
}

func pyQuote(s string) string {
	q := "'"
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		q = `"`
	}
	r := strings.NewReplacer(`\`, `\\`, q, `\`+q, "\n", `\n`, "\t", `\t`, "\r", `\r`)
	return q + r.Replace(s) + q
}

// key turns a scalar into a mapping key.
func (n *Node) key() Key { return Key{n.Kind, n.pyStr()} }

// node turns a key back into a scalar.
func (k Key) node() *Node {
	switch k.Kind {
	case Bool:
		return newBool(k.Text == "True")
	case Int:
		return &Node{Kind: Int, Text: k.Text}
	case Float:
		f, _ := strconv.ParseFloat(k.Text, 64)
		return newFloat(f)
	}
	return plainString(k.Text)
}
