package runfolder

import (
	"testing"
	"testing/fstest"

	"fulcrum/configs"
)

// Runs go on under the configuration that they were saved under, but for keys that say where and how it is computed.
func TestFingerprint(t *testing.T) {
	schema, err := configs.SchemaOf(&struct {
		Seed    int `koanf:"seed"`
		Logging struct {
			Every int `koanf:"every"`
		} `koanf:"logging"`
		Parallel struct {
			Processes int `koanf:"processes"`
			Shards    int `koanf:"shards"`
		} `koanf:"parallel"`
		Checkpoint struct {
			KeepStates int `koanf:"keep_states"`
		} `koanf:"checkpoint"`
		Eval struct {
			Cluster    int `koanf:"cluster"`
			MaxQueries int `koanf:"max_queries"`
		} `koanf:"eval"`
		Vars map[string]any `koanf:"vars"`
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
	for _, tc := range []struct {
		overrides []string
		same      bool
	}{
		{nil, true}, {[]string{"logging.every=5"}, true}, {[]string{"seed=3"}, false},
		{[]string{"checkpoint.keep_states=5"}, true}, {[]string{"eval.cluster=5"}, true}, {[]string{"eval.max_queries=5"}, false},
	} {
		if hash, err := Fingerprint(compose(tc.overrides...)); err != nil || (hash == now) != tc.same {
			t.Errorf("%v: got %v (%v), want %v", tc.overrides, hash == now, err, tc.same)
		}
	}
	if dir, err := HydraValue(compose("hydra.run.dir='of ${seed}'"), "run.dir"); err != nil || dir != "of 2" {
		t.Errorf("a run folder named by a key of the job: %q, %v", dir, err)
	}
	for override, same := range map[string]bool{"parallel.processes=2": true, "+vars.mine=2": true, "+vars.seed=3": true,
		"parallel.shards=2": false} {
		if hash, err := Fingerprint(compose(override)); err != nil || (hash == now) != same {
			t.Errorf("%s: got %v (%v), want %v", override, hash == now, err, same)
		}
	}
}
