package runfolder

import (
	"testing"
	"testing/fstest"

	"fulcrum/configs"
)

// Runs saved by a program that hashed defaults too go on; runs under another configuration do not.
func TestHasFingerprint(t *testing.T) {
	schema, err := configs.SchemaOf(&struct {
		Seed    int `koanf:"seed"`
		Logging struct {
			Every int `koanf:"every"`
		} `koanf:"logging"`
		Parallel struct {
			Processes int `koanf:"processes"`
			Shards    int `koanf:"shards"`
		} `koanf:"parallel"`
	}{Seed: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	compose := func(overrides ...string) *configs.Composed {
		c, err := configs.Compose(configs.Request{
			Library: fstest.MapFS{"config.yaml": {Data: []byte("seed: 2\n")}}, Schema: schema, Overrides: overrides,
		})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := compose()
	now, err := Fingerprint(c)
	if err != nil {
		t.Fatal(err)
	}
	before, err := c.FullFingerprint("logging")
	if err != nil {
		t.Fatal(err)
	}
	if now == before {
		t.Error("both forms are equal")
	}
	for _, tc := range []struct {
		overrides []string
		same      bool
	}{
		{nil, true}, {[]string{"logging.every=5"}, true}, {[]string{"seed=3"}, false},
	} {
		for form, saved := range map[string]string{"now": now, "before": before} {
			if same, err := HasFingerprint(compose(tc.overrides...), saved); err != nil || same != tc.same {
				t.Errorf("%v, saved in the form of %s: got %v (%v), want %v", tc.overrides, form, same, err, tc.same)
			}
		}
	}
	for override, same := range map[string]bool{"parallel.processes=2": true, "parallel.shards=2": false} {
		if got, err := HasFingerprint(compose(override), now); err != nil || got != same {
			t.Errorf("%s: got %v (%v), want %v", override, got, err, same)
		}
	}
}
