package phases

import (
	"encoding/json"
	"math"
	"strconv"
)

// number is a float64 that JSON can hold: NaN and infinity are the strings "nan", "inf" and "-inf", as in
// metrics.jsonl. Runs with Env.AllowNonFinite go on with such numbers.
type number float64

// MarshalJSON implements json.Marshaler.
func (x number) MarshalJSON() ([]byte, error) {
	switch f := float64(x); {
	case math.IsNaN(f):
		return []byte(`"nan"`), nil
	case math.IsInf(f, 1):
		return []byte(`"inf"`), nil
	case math.IsInf(f, -1):
		return []byte(`"-inf"`), nil
	}
	return json.Marshal(float64(x))
}

// UnmarshalJSON implements json.Unmarshaler.
func (x *number) UnmarshalJSON(text []byte) error {
	var word string
	if json.Unmarshal(text, &word) == nil {
		f, err := strconv.ParseFloat(word, 64)
		*x = number(f)
		return err
	}
	return json.Unmarshal(text, (*float64)(x))
}

// numbers returns m with its numbers as JSON can hold them.
func (m Metrics) numbers() Metrics {
	out := Metrics{}
	for name, x := range m {
		if f, ok := x.(float64); ok {
			x = number(f)
		}
		out[name] = x
	}
	return out
}
