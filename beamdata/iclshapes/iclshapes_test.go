package iclshapes

import (
	"strings"
	"testing"
)

// TestEveryEpisodeCanBeAnswered reads episodes as a model would.
func TestEveryEpisodeCanBeAnswered(t *testing.T) {
	opt := DefaultOptions()
	opt.Episodes, opt.Lists = 300, 20
	b, err := Episodes(opt)
	if err != nil {
		t.Fatal(err)
	}
	if b.Train.Len() != 300 || b.Demos.Len() != 320 || b.Val.Len() != heldEpisodes || b.Eval.Len() != heldEpisodes {
		t.Fatalf("%d, %d, %d and %d samples", b.Train.Len(), b.Demos.Len(), b.Val.Len(), b.Eval.Len())
	}
	meanings := map[string]map[string]bool{} // of an ordinary word, over the episodes
	for i := range b.Train.Len() {
		s, err := b.Train.Sample(i)
		if err != nil {
			t.Fatal(err)
		}
		told := false
		for _, m := range s.Messages {
			told = told || m.Role == "assistant" && m.Text == s.Reference
		}
		if last := s.Messages[len(s.Messages)-1]; !told || last.Role != "user" {
			t.Fatalf("%s: nothing before %+v tells %q", s.Name, last, s.Reference)
		}
		name, word, _ := strings.Cut(s.Reference, " ")
		if meanings[name] == nil {
			meanings[name] = map[string]bool{}
		}
		meanings[name][word] = true
	}
	for name, of := range meanings {
		if len(of) < 5 {
			t.Errorf("%s is called %v only: it could be learned by heart", name, of)
		}
	}
	list, err := b.Demos.Sample(0)
	if err != nil || strings.Count(list.Reference, "\n") != listLines-1 {
		t.Errorf("the first demonstration is %+v, %v: want a list", list, err)
	}
}
