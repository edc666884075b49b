package configs

import (
	"encoding/json"
	"maps"
	"os"
	"strings"
	"testing"
)

// ownOptions is the structured config that Hydra 1.3 with OmegaConf 2.3 composed the cases of own.json with.
type ownOptions struct {
	Seed  int            `koanf:"seed"`
	LR    float64        `koanf:"lr"`
	Flag  bool           `koanf:"flag"`
	Name  string         `koanf:"name"`
	Limit *int           `koanf:"limit"`
	Vars  map[string]any `koanf:"vars"`
}

// A user's own keys, his groups that fill them, and what an interpolation gives a typed key are as Hydra and OmegaConf have them. A case
// says what differs from the first one.
func TestOwnKeys(t *testing.T) {
	data, err := os.ReadFile("testdata/hydra/own.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Args  []string
		Env   map[string]string
		Want  map[string]any
		Error bool
		Says  []string
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	schema, err := SchemaOf(&ownOptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range cases {
		c, err := Compose(Request{ConfigPath: "testdata/hydra/conf/own", Overrides: tc.Args, Schema: schema,
			Getenv: func(k string) (string, bool) { v, ok := tc.Env[k]; return v, ok }})
		if (err != nil) != tc.Error {
			t.Errorf("%q %v: error %v", tc.Args, tc.Env, err)
			continue
		}
		for _, part := range tc.Says {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q %v: %v, want %s", tc.Args, tc.Env, err, part)
			}
		}
		if tc.Error {
			continue
		}
		n, err := c.Resolved()
		if err != nil {
			t.Fatal(err)
		}
		want := maps.Clone(cases[0].Want)
		maps.Copy(want, tc.Want)
		for key, value := range want {
			text, _ := json.Marshal(value)
			got, err := ParseYAML("", []byte(n.Get(key).YAML()))
			if err != nil {
				t.Fatal(err)
			}
			if expected, _ := ParseYAML("", text); !got.equal(expected) {
				t.Errorf("%q %v: %s is %s, want %s", tc.Args, tc.Env, key, got.pyRepr(), text)
			}
		}
	}
}
