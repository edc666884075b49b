//go:build !core

package tasks

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"fulcrum/beamdata/poolfeatures"
	"fulcrum/configs"
	"fulcrum/experiments/job"
	"fulcrum/internal/torchx"
	"fulcrum/selector/pointer"
)

// Every preset of the selector composes with exp=okvqa_online, says its own name and can be built; each is a selector of
// its own but for v4_1, which is v3.
func TestSelectorPresets(t *testing.T) {
	schema, err := Schema(Frozen)
	if err != nil {
		t.Fatal(err)
	}
	if err := torchx.Load(); err != nil {
		t.Fatal(err)
	}
	torchx.Attach(1)
	files, err := fs.Glob(configs.Library(), "selector/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	same := map[string][]string{}
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(file, "selector/"), ".yaml")
		cfg, err := configs.Compose(configs.Request{Library: configs.Library(), Schema: schema, Now: time.Now(), AppName: "run",
			Overrides: []string{"exp=okvqa_online", "selector=" + name}})
		if err != nil {
			t.Fatal(err)
		}
		c := new(job.Config)
		if err := cfg.Decode(c); err != nil {
			t.Fatal(err)
		}
		if selectorOf(c).Variant != name {
			t.Errorf("%s: variant %s", file, selectorOf(c).Variant)
		}
		opt := *selectorOf(c)
		opt.Features.Names, _ = poolfeatures.Expand(opt.Features.Names, nil, nil)
		l, err := poolfeatures.New(poolfeatures.Table(), opt.Features.Names)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		ones := slices.Repeat([]float64{1}, l.Columns()+l.BesideColumns()) // as a run would measure them
		opt.Features.Scaling = poolfeatures.Scaling{Mean: ones, Scale: ones}
		p, err := pointer.New(opt, 16, 0, "cpu")
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		facts := p.Metadata()
		p.Free()
		delete(facts, "selector.variant")
		text := fmt.Sprint(facts) // sorted by key
		same[text] = append(same[text], name)
	}
	twins := 0
	for _, names := range same {
		if len(names) > 1 && !slices.Equal(names, []string{"v3", "v4_1"}) {
			t.Errorf("%v are the same selector", names)
		}
		twins += len(names) - 1
	}
	if len(files) < 16 || twins != 1 {
		t.Errorf("%d presets, %d doubled, want v4_1 only", len(files), twins)
	}
}
