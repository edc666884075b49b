package conversation

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// What the scan finds in a record is what decoding it finds.
func TestHoldingAgreesWithDecoding(t *testing.T) {
	human, gpt := `{"from":"human","value":"q"}`, `{"from":"gpt","value":"a"}`
	for _, tc := range []struct {
		name, record, target, group string // the reason why it lacks a target, a group
	}{
		{"a last assistant turn", `{"conversations":[` + human + `,` + gpt + `]}`, "", "few"},
		{"roles", `{"conversations":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]}`, "", "few"},
		{"messages", `{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":[{"type":"text","text":"a"}]}]}`, "", "few"},
		{"no answer", `{"conversations":[` + human + `]}`, "record_without_an_answer", "few"},
		{"swapped turns", `{"conversations":[` + gpt + `,` + human + `]}`, "record_that_ends_with_a_user_turn", "few"},
		{"answers", `{"conversations":[` + human + `],"answers":["x",{"answer":"x"}]}`, "", "few"},
		{"empty answers", `{"answers":["",""],"conversations":[` + human + `]}`, "record_without_an_answer", "few"},
		{"null", `{"conversations":[` + human + `],"answers":null,"completions":null}`, "record_without_an_answer", "few"},
		{"one completion", `{"conversations":[` + human + `],"completions":[{"text":"x","reward":1}]}`, "", "few"},
		{"two completions", `{"completions":[{"text":"x","reward":1},{"text":"y","reward":0}],"conversations":[` + gpt + `,` + human +
			`]}`, "", ""},
		{"a prompt", `{"prompt":"q"}`, "record_without_an_answer", "few"},
		{"a prompt with a completion before it", `{"completion":"a","prompt":[{"role":"user","content":"q"}]}`, "", "few"},
		{"a prompt and an answer", `{"prompt":[{"role":"user","content":"q"}],"answer":0}`, "", "few"},
		{"a prompt and no answer", `{"prompt":[{"role":"user","content":"q"}],"answer":"","solution":null}`, "record_without_an_answer", "few"},
		{"messages beside a prompt", `{"messages":[{"role":"user","content":"q"}],"prompt":"p","completion":"c"}`,
			"record_without_an_answer", "few"},
		{"a response", `{"prompt":"q","response":"a"}`, "", "few"},
		{"other case", `{"Conversations":[` + human + `],"ANSWERS":["x"]}`, "", "few"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := decode([]byte(tc.record), ".", DefaultVideoOptions())
			if err != nil {
				t.Fatal(err)
			}
			var decoded holding
			if s.Reference != "" {
				decoded |= hasTarget
			}
			decoded |= several(len(s.Completions))
			found := holdingOf([]byte(tc.record))
			if found&^(lastIsUser|swapped|twice) != decoded {
				t.Errorf("found %b, decoding gives %b", found, decoded)
			}
			if got := found.lacks(Target); got != tc.target {
				t.Errorf("as a target: got %q, want %q", got, tc.target)
			}
			if got := found.lacks(Group); (got != "") != (tc.group != "") {
				t.Errorf("as a group: got %q", got)
			}
		})
	}
}

// Turns in the wrong order are told as that, where they stand, and not as an answer that is missing.
func TestOrderOfTurns(t *testing.T) {
	const twice, swapped = "1 record with two turns of one speaker in a row, want user and assistant in turn",
		"1 record whose first turn is the assistant's and last turn the user's, want them the other way round"
	for _, tc := range []struct{ speakers, more, want string }{
		{"user assistant", "", ""},
		{"system human gpt user assistant", "", ""},
		{"user", "", ""},
		{"user assistant tool tool assistant", "", ""},
		{"assistant user assistant", "", ""}, // a greeting
		{"assistant user", `,"answers":["x"]`, ""},
		{"assistant user", "", swapped},
		{"system gpt human gpt human", "", swapped},
		{"user human assistant", "", ""},
		{"user assistant assistant user", `,"answers":["x"]`, ""},
		{"user assistant gpt human", "", twice},
		{"assistant user system user", "", twice},
	} {
		var lines []string
		for _, speakers := range []string{"user assistant", tc.speakers} {
			var turns []string
			for speaker := range strings.FieldsSeq(speakers) {
				turns = append(turns, fmt.Sprintf(`{"role":%q,"content":"x"}`, speaker))
			}
			key := "messages"
			if strings.Contains(speakers, "gpt") || strings.Contains(speakers, "human") {
				key = "conversations"
			}
			lines = append(lines, `{"`+key+`":[`+strings.Join(turns, ",")+`]`+tc.more+`}`)
		}
		path := filepath.Join(write(t, map[string]string{"x.jsonl": strings.Join(lines, "\n")}), "x.jsonl")
		f, err := openFile(path, "train", DefaultOptions())
		if err != nil {
			t.Fatal(err)
		}
		kept, skipped, err := NewSet("x", f, Rows(2)).With(Order)
		got := fmt.Sprint(kept.Len(), skipped, err)
		want := "2 [] <nil>"
		if tc.want != "" {
			want = "1 [" + tc.want + " (x.jsonl: line 2)] <nil>"
		}
		if got != want {
			t.Errorf("%s%s: got %s, want %s", tc.speakers, tc.more, got, want)
		}
		for share, refused := range map[float64]bool{0.5: false, 0.4: tc.want != ""} {
			facts, fault := Inspect(path, share, nil)
			told := fmt.Sprint(facts, fault)
			refused = refused || share < 0.5 && tc.speakers == "user" // it has no answer
			if (fault != nil && strings.Contains(told, "data.max_skipped_share")) != refused || !strings.Contains(told, tc.want) {
				t.Errorf("%s%s: share %g: %s", tc.speakers, tc.more, share, told)
			}
		}
	}
}

// What is left out is told by its length where that differs.
func TestWith(t *testing.T) {
	t.Run("as long", func(t *testing.T) { with(t, 1, "") })
	t.Run("longer", func(t *testing.T) { with(t, 40, "; prompts of 40 bytes on average, those kept 1") })
}

func with(t *testing.T, long int, apart string) {
	var lines []string
	for i := range 12 {
		turns := `{"from":"human","value":"q"},{"from":"gpt","value":"a"}`
		switch {
		case i%2 == 1:
			turns = fmt.Sprintf(`{"from":"human","value":"%s"}`, strings.Repeat("q", long))
		case i == 4:
			turns = `{"from":"gpt","value":"a"},{"from":"human","value":"q"}`
		}
		lines = append(lines, fmt.Sprintf(`{"id":%d,"conversations":[%s],"complete":[]}`, i, turns))
	}
	path := filepath.Join(write(t, map[string]string{"x.jsonl": strings.Join(lines, "\n")}), "x.jsonl")
	opt := DefaultOptions()
	opt.Eval = &path
	b, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	with, skipped, err := b.Eval.With(Target)
	if err != nil || with.Len() != 5 || len(skipped) != 2 {
		t.Fatalf("%d samples, skipped %v (%v)", with.Len(), skipped, err)
	}
	if got := skipped[0].String(); got != "6 records without an answer (x.jsonl: lines 2, 4, 6, 8, 10, …"+apart+")" {
		t.Error(got)
	}
	if got := skipped[1].String(); got != "1 record ending with a user turn (x.jsonl: line 5)" {
		t.Error(got)
	}
	for i, want := range []int64{0, 2, 6, 8, 10} {
		if with.ID(i) != want {
			t.Errorf("sample %d is record %d, want %d", i, with.ID(i), want)
		}
	}
	if again, skipped, err := with.With(Target); again != with || skipped != nil || err != nil {
		t.Error("a set that lacks nothing is not itself")
	}
	if len(b.Unknown) != 1 || b.Unknown[0].Nearest != "completions" || b.Unknown[0].Count != 12 || b.Unknown[0].First != 1 {
		t.Errorf("unknown keys %v", b.Unknown)
	}
}
