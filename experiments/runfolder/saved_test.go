package runfolder

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"fulcrum/configs"
	"fulcrum/reports/record"
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

// A folder's readers see the numbers that interpolations stood for when the run started, whatever they would be today. Texts may be
// secrets: no file has them.
func TestResolvedNumbers(t *testing.T) {
	var options struct {
		Seed int    `koanf:"seed"`
		Name string `koanf:"name"`
		A    struct {
			LR float64 `koanf:"lr"`
			Up bool    `koanf:"up"`
		} `koanf:"a"`
		B    any            `koanf:"b"`
		Pair []float64      `koanf:"pair"`
		Vars map[string]any `koanf:"vars"`
	}
	schema, err := configs.SchemaOf(&options, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("FULCRUM_TEST_SEED", "7")
	t.Setenv("FULCRUM_TEST_NAME", "123456")
	snapshot := func(text string) string {
		c, err := configs.Compose(configs.Request{Library: fstest.MapFS{"config.yaml": {Data: []byte(text)}}, Schema: schema})
		if err != nil {
			t.Fatal(err)
		}
		f, err := Claim(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer f.Release()
		if err := f.Snapshot(c); err != nil {
			t.Fatal(err)
		}
		return f.Dir
	}
	dir := snapshot("seed: ${oc.env:FULCRUM_TEST_SEED}\nname: ${oc.env:FULCRUM_TEST_NAME}\n" +
		"a: {lr: '${vars.lr}', up: true}\nb: ${a}\npair: ['${vars.lr}', 2]\nvars: {lr: 0.5}\n")
	t.Setenv("FULCRUM_TEST_SEED", "8")
	flat, err := record.Settings(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"seed": "7", "name": "${oc.env:FULCRUM_TEST_NAME}", "a.lr": "0.5", "a.up": "true", "b.lr": "0.5", "b.up": "true",
		"vars.lr": "0.5", "pair": "[0.5, 2]"}
	if !maps.Equal(flat, want) {
		t.Errorf("%v, want %v", flat, want)
	}
	r := record.Run{Dir: dir}
	if err := r.ReadConfig(); err != nil {
		t.Fatal(err)
	}
	seed, _ := r.SettingNumber("seed")
	if lr, _ := r.SettingNumber("b", "lr"); seed != 7 || lr != 0.5 || r.Setting("a", "up") != true || r.Setting("name") != want["name"] {
		t.Errorf("%v", r.Tree)
	}
	if _, err := os.Stat(filepath.Join(snapshot("seed: 1\n"), record.ResolvedFile)); err == nil {
		t.Error("a configuration without interpolations has resolved ones")
	}
}
