package configs

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// Scalars of YAML files, by the rules of PyYAML (YAML 1.1) with OmegaConf's changes, and numbers
// printed as Python prints them. No regular expressions: start-up counts.

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

// yamlInt reads [-+]? with 0b1, 017, 10, 0x1F or sexagesimal 12:30; underscores anywhere after the first digit.
func yamlInt(s string) *Node {
	sign, body := splitSign(s)
	whole := func(set string, rest string) bool { return rest != "" && span(rest, set) == len(rest) }
	base, text := 0, ""
	switch {
	case strings.HasPrefix(body, "0b") && whole("01_", body[2:]):
		base, text = 2, body[2:]
	case strings.HasPrefix(body, "0x") && whole("0123456789abcdefABCDEF_", body[2:]):
		base, text = 16, body[2:]
	case body == "0":
		base, text = 10, body
	case len(body) > 1 && body[0] == '0' && whole("01234567_", body[1:]):
		base, text = 8, body[1:]
	case body != "" && body[0] >= '1' && body[0] <= '9' && whole(digits+"_", body):
		base, text = 10, body
	case body != "" && body[0] >= '1' && body[0] <= '9' && strings.IndexByte(body, ':') > 0:
		total, ok := sexagesimal(body)
		if !ok {
			return nil
		}
		return &Node{Kind: Int, Text: sign + total.String()}
	default:
		return nil
	}
	text = strings.ReplaceAll(text, "_", "")
	if text == "" {
		if base == 8 { // 0_
			text = "0"
		} else {
			return nil
		}
	}
	return intNode(sign, text, base)
}

func splitSign(s string) (sign, rest string) {
	if s != "" && (s[0] == '-' || s[0] == '+') {
		if s[0] == '-' {
			sign = "-"
		}
		return sign, s[1:]
	}
	return "", s
}

func sexagesimal(s string) (*big.Int, bool) {
	total := new(big.Int)
	for i, part := range strings.Split(s, ":") {
		part = strings.ReplaceAll(part, "_", "")
		if i > 0 && (part == "" || len(part) > 2 || span(part, digits) != len(part) || len(part) == 2 && part[0] > '5') {
			return nil, false
		}
		v, ok := new(big.Int).SetString(part, 10)
		if !ok {
			return nil, false
		}
		total.Add(total.Mul(total, big.NewInt(60)), v)
	}
	return total, true
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
	sign, body := splitSign(s)
	signed := len(body) < len(s)
	switch body {
	case ".inf", ".Inf", ".INF":
		if sign == "-" {
			return newFloat(math.Inf(-1))
		}
		return newFloat(math.Inf(1))
	case ".nan", ".NaN", ".NAN":
		if !signed {
			return newFloat(math.NaN())
		}
		return nil
	}
	if body == "" {
		return nil
	}
	mantissa := 0
	if digit(body[0]) {
		mantissa = span(body, digits+"_")
		dot := mantissa < len(body) && body[mantissa] == '.'
		if dot {
			mantissa += 1 + span(body[mantissa+1:], digits+"_")
		}
		if !dot && (mantissa == len(body) || body[mantissa] != 'e' && body[mantissa] != 'E') {
			return sexagesimalFloat(sign, body)
		}
	} else if body[0] == '.' && !signed {
		mantissa = 1 + span(body[1:], digits+"_")
		if mantissa == 1 || body[1] == '_' {
			return nil
		}
	} else {
		return nil
	}
	rest := body[mantissa:]
	if rest != "" {
		if rest[0] != 'e' && rest[0] != 'E' {
			return nil
		}
		rest = rest[1:]
		if rest != "" && (rest[0] == '+' || rest[0] == '-') {
			rest = rest[1:]
		} else if body[0] == '.' {
			return nil // .5e3 needs a sign
		}
		if rest == "" || span(rest, digits) != len(rest) {
			return nil
		}
	}
	return parseFloatText(sign + body)
}

func sexagesimalFloat(sign, body string) *Node {
	dot := strings.IndexByte(body, '.')
	if dot < 0 || strings.IndexByte(body, ':') < 0 || span(body[dot+1:], digits+"_") != len(body)-dot-1 {
		return nil
	}
	whole, ok := sexagesimal(body[:dot])
	if !ok {
		return nil
	}
	return parseFloatText(sign + whole.String() + body[dot:])
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
	open, end := "[", "]"
	if n.Kind == Map {
		open, end = "{", "}"
	}
	var b strings.Builder
	b.WriteString(open)
	for i, v := range n.Vals {
		if i > 0 {
			b.WriteString(", ")
		}
		if n.Kind == Map {
			b.WriteString(n.Keys[i].node().pyRepr() + ": ")
		}
		b.WriteString(v.pyRepr())
	}
	b.WriteString(end)
	return b.String()
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
