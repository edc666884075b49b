//go:build !core

package tasks

import (
	"strings"
	"testing"
	"time"

	"fulcrum/configs"
	"fulcrum/experiments/leverplus"
)

// The defaults of the reference's main are those of exp=lever_plus_compat: what was not given needs no
// override. Every switch with a key sets one that exists.
func TestSwitchDefaultsAreTheExperiments(t *testing.T) {
	schema, err := Schema(Frozen, leverplus.Bring)
	if err != nil {
		t.Fatal(err)
	}
	compose := func(overrides ...string) *configs.Composed {
		t.Helper()
		c, err := configs.Compose(configs.Request{Library: configs.Library(), Schema: schema, Now: time.Now(), AppName: "run",
			Overrides: append([]string{"exp=lever_plus_compat", "data.beams=b", "data.embeddings=e"}, overrides...)})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	value := func(c *configs.Composed, key string) string {
		t.Helper()
		text, err := c.YAML("job", true, key)
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		_, text, _ = strings.Cut("\n"+text, "\n# @package "+key+"\n")
		if text == "" {
			text, _ = c.YAML("job", true, key)
		}
		return strings.TrimSpace(text)
	}
	plain := compose()
	seen := 0
	for _, s := range leverplus.Switches() {
		if s.Key == "" || s.Key == "hydra.run.dir" || s.Key == "device" || s.Required || s.Name == "sft_ckpt" ||
			s.Name == "img_emb" || s.Initial == "null" {
			continue
		}
		seen++
		if plain.Tree().Find(s.Key) == nil { // of another mode of the reward
			continue
		}
		before := value(plain, s.Key)
		if s.Kind == leverplus.Flag {
			if after := value(compose(s.Key+"="+s.Value), s.Key); after == before {
				t.Errorf("--%s: %s=%s changes nothing", s.Name, s.Key, s.Value)
			}
			continue
		}
		if after := value(compose(s.Key+"="+leverplus.OverrideValue(s, s.Initial)), s.Key); after != before {
			t.Errorf("--%s: default %s, exp=lever_plus_compat has %s", s.Name, s.Initial, before)
		}
	}
	if seen < 26 {
		t.Errorf("only %d switches", seen)
	}
}
