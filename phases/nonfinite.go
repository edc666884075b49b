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

// savedCandidate is a bestCandidate as JSON.
type savedCandidate struct {
	Phase string `json:"phase"`
	Epoch int    `json:"epoch"`
	File  string `json:"file"`
	Value number `json:"value"`
	KL    number `json:"kl"`
	Loss  number `json:"loss"`
	Saved bool   `json:"saved"`
}

// MarshalJSON implements json.Marshaler.
func (c bestCandidate) MarshalJSON() ([]byte, error) {
	return json.Marshal(savedCandidate{c.Phase, c.Epoch, c.File, number(c.Value), number(c.KL), number(c.Loss), c.Saved})
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *bestCandidate) UnmarshalJSON(text []byte) error {
	var s savedCandidate
	err := json.Unmarshal(text, &s)
	*c = bestCandidate{s.Phase, s.Epoch, s.File, float64(s.Value), float64(s.KL), float64(s.Loss), s.Saved}
	return err
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
