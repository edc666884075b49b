package recent

import (
	"fmt"
	"testing"
)

func TestCache(t *testing.T) {
	freed := ""
	c := Cache[string, int]{Limit: 5, Size: func(v int) int { return v }, Free: func(v int) { freed += fmt.Sprint(v, ";") }}
	if _, ok := c.Get("a"); ok {
		t.Error("an empty cache has a value")
	}
	c.Put("a", 2)
	c.Put("b", 3)
	if v, ok := c.Get("a"); v != 2 || !ok {
		t.Errorf("a: %d, %v", v, ok)
	}
	c.Put("c", 1)
	if len(c.Values) != 3 || c.Total != 6 {
		t.Errorf("before Trim: %v, %d in all", c.Values, c.Total)
	}
	c.Trim()
	if got := fmt.Sprintf("%v %d %s", c.Values, c.Total, freed); got != "map[a:2 c:1] 3 3;" {
		t.Errorf("after Trim: %s: want b, used longest ago, dropped", got)
	}
	c.Clear()
	if got := fmt.Sprintf("%v %d %s", c.Values, c.Total, freed); got != "map[] 0 3;2;1;" {
		t.Errorf("after Clear: %s", got)
	}
	c.Put("d", 4)
	if v, _ := c.Get("d"); v != 4 {
		t.Error("a cleared cache keeps nothing")
	}
}
