package registry

import (
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	names := []string{"grpo.kl.beta", "grpo.lr", "rce.lr", "seed"}
	for _, tc := range []struct {
		name, in, want string
		ok             bool
	}{
		{"a missing letter is one edit", "grpo.kl.bta", "grpo.kl.beta", true},
		{"swapped neighbours are one edit", "grpo.rl", "grpo.lr", true},
		{"case does not matter", "Seed", "seed", true},
		{"something else suggests nothing", "completely_other", "", false},
		{"a short name needs to be close", "xy", "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, ok := Nearest(tc.in, names)
			if ok != tc.ok || ok && got != tc.want {
				t.Errorf("Nearest(%q) = %q, %v; want %q, %v", tc.in, got, ok, tc.want, tc.ok)
			}
		})
	}
	if _, ok := Nearest("x", nil); ok {
		t.Error("Nearest of no names suggested something")
	}
}

func TestTable(t *testing.T) {
	tab := New[int]("phase")
	tab.Add("rce", 1)
	tab.Add("grpo", 2)
	if v, err := tab.Get("grpo"); err != nil || v != 2 {
		t.Fatalf("Get(grpo) = %d, %v", v, err)
	}
	_, err := tab.Get("gpro")
	if err == nil {
		t.Fatal("Get(gpro) succeeded")
	}
	want := `unknown phase "gpro" (did you mean grpo?): want one of grpo, rce`
	if err.Error() != want {
		t.Errorf("error\n got %s\nwant %s", err, want)
	}
	defer func() {
		if r := recover(); r == nil || !strings.Contains(r.(string), "added twice") {
			t.Errorf("adding twice: recovered %v", r)
		}
	}()
	tab.Add("rce", 3)
}
