package summaries

import (
	"strings"
	"testing"

	"fulcrum/internal/rng"
	"fulcrum/rewardutil/text"
)

func TestExamples(t *testing.T) {
	set := New(DefaultOptions())
	seen := map[string]string{}
	kinds, writers := map[string]int{}, map[string]int{}
	talks, n := 0, 0
	for _, split := range []string{Train, Val, Test} {
		for i := range set.Len(split) {
			e := set.Example(split, i)
			n++
			if e != set.Example(split, i) {
				t.Fatalf("%s %d differs the second time", split, i)
			}
			if other, ok := seen[e.Source]; ok {
				t.Errorf("%s %d repeats a report of %s:\n%s", split, i, other, e.Source)
			}
			seen[e.Source] = split
			kinds[e.Kind]++
			writers[e.Writer]++
			if strings.HasPrefix(e.Source, "ann: ") {
				talks++
			}
			if s := strings.Count(e.Target, "."); s < 1 || s > 4 {
				t.Errorf("%d sentences: %s", s, e.Target)
			}
		}
	}
	if len(kinds) != 4 || len(writers) != 4 {
		t.Errorf("kinds %v, writers %v", kinds, writers)
	}
	near := func(what string, count int, want float64) {
		if got := float64(count) / float64(n); got < want-0.03 || got > want+0.03 {
			t.Errorf("%s: share %.3f, want %.2f", what, got, want)
		}
	}
	near("talks", talks, 0.25)
	near("headlines", writers["headline"], headlineShare)
	for _, long := range []string{"day", "object", "subject"} {
		near(long, writers[long], (1-headlineShare)/3)
	}
}

func TestDrafts(t *testing.T) {
	opt := DefaultOptions()
	opt.Drafts = 200
	drafts := New(opt)
	distractors := 0
	for i := range 200 {
		d := drafts.Example(Drafts, i)
		if d.Source == drafts.Example(Train, i).Source {
			t.Fatalf("draft %d is of a training report", i)
		}
		if s := strings.Count(d.Target, "."); s < 1 || s > 3 {
			t.Errorf("%d sentences: %s", s, d.Target)
		}
		if strings.Contains(d.Target, "help line") || strings.Contains(d.Target, "referee") {
			distractors++
		}
	}
	if distractors == 0 {
		t.Error("no draft tells what no summary would")
	}
}

// The report holds what its summaries say: every word of a long summary that is a name or a number.
func TestSummariesAreGrounded(t *testing.T) {
	names := map[string]bool{}
	for _, list := range [][]string{days(), places(), people(), teams(), firms()} {
		for _, w := range list {
			names[w] = true
		}
	}
	set := New(DefaultOptions())
	for i := range 1000 {
		e := set.Example(Train, i)
		has := map[string]bool{}
		for _, w := range text.RougeTokens(e.Source, false) {
			has[w] = true
		}
		if strings.HasPrefix(e.Target, "win by") {
			continue // a difference
		}
		for _, w := range text.RougeTokens(e.Target, false) {
			if (names[w] || w[0] >= '0' && w[0] <= '9') && !has[w] {
				t.Errorf("%q is not in the report\n%s\n→ %s", w, e.Source, e.Target)
			}
		}
	}
}

// Perfect readers with different habits, scored by the mean ROUGE-L F1 against all the writers: imitation's
// likeliest words are a headline (no word begins more references); the best habit is another.
func TestImitationLeavesAGap(t *testing.T) {
	habits := []struct {
		name string
		text func(story) string
	}{
		{"headline", func(s story) string { return s.headlines[0] }},
		{"opening", func(s story) string { return s.openings[2] }},
		{"details of half the writers", func(s story) string { return s.long(0.5) }},
		{"all but the seldom", func(s story) string { return s.long(0.4) }},
		{"everything", func(s story) string { return s.long(0) }},
	}
	scores := make([]float64, len(habits))
	const reports = 2000
	for i := range reports {
		r := rng.New(7, "habits", i)
		kinds := stories()
		st := kinds[r.IntN(len(kinds))](r)
		reference, _ := st.summary(r)
		for k, h := range habits {
			scores[k] += text.Rouge(reference, h.text(st), true).RougeL.F1 / reports
		}
	}
	for k, h := range habits {
		t.Logf("%-32s %.3f", h.name, scores[k])
	}
	if headline, half, everything := scores[0], scores[2], scores[4]; !(half > headline+0.2 && half > everything+0.05) {
		t.Errorf("no gap: headline %.3f, details of half the writers %.3f, everything %.3f", headline, half, everything)
	}
}

// long is the third writer's summary with the details of at least this share.
func (s story) long(share float64) string {
	text := s.openings[2]
	for _, d := range s.details {
		if d.share >= share {
			text += " " + d.text
		}
	}
	return text
}
