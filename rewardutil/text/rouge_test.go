package text

import (
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
)

// The goldens come from the original rouge_score 0.1.2 with NLTK 3.8: scores must be equal to the last bit,
// all but F1, which may round once differently.
func TestRougeEqualsRougeScore(t *testing.T) {
	var goldens struct {
		Cases []struct {
			Target, Prediction, Kind string
			Plain, Stemmed           struct {
				Rouge1, Rouge2 [3]float64
				RougeL         [3]float64 `json:"rougeL"`
				RougeLsum      [3]float64 `json:"rougeLsum"`
			}
		}
		Tokenization []struct {
			Text           string
			Plain, Stemmed []string
		}
		Porter []struct {
			Word, Stem string
			RougeToken string `json:"rouge_token"`
		}
		LengthSimilarity []struct {
			A, B   string
			Reward float64
		} `json:"length_similarity"`
	}
	golden.JSON(t, golden.Shared(t, "seq2seq", "rouge_cases.json"), &goldens)
	if len(goldens.Cases) < 100 || len(goldens.Tokenization) < 100 || len(goldens.Porter) < 250 || len(goldens.LengthSimilarity) < 30 {
		t.Fatalf("too few goldens: %d, %d, %d, %d", len(goldens.Cases), len(goldens.Tokenization), len(goldens.Porter),
			len(goldens.LengthSimilarity))
	}
	for i, c := range goldens.Cases {
		for _, stem := range []bool{false, true} {
			want := c.Plain
			if stem {
				want = c.Stemmed
			}
			got := Rouge(c.Target, c.Prediction, stem)
			for k, pair := range []struct {
				got  RougeScore
				want [3]float64
			}{{got.Rouge1, want.Rouge1}, {got.Rouge2, want.Rouge2}, {got.RougeL, want.RougeL}, {got.RougeLsum, want.RougeLsum}} {
				if pair.got.Precision != pair.want[0] || pair.got.Recall != pair.want[1] || !near(pair.got.F1, pair.want[2]) {
					t.Errorf("case %d (%s) stem %v measure %d: got %v, want %v\ntarget     %q\nprediction %q", i, c.Kind, stem, k, pair.got, pair.want,
						c.Target, c.Prediction)
				}
			}
		}
	}
	for _, c := range goldens.Tokenization {
		if got := RougeTokens(c.Text, false); !slices.Equal(got, c.Plain) {
			t.Errorf("tokens of %q: got %q, want %q", c.Text, got, c.Plain)
		}
		if got := RougeTokens(c.Text, true); !slices.Equal(got, c.Stemmed) {
			t.Errorf("stems of %q: got %q, want %q", c.Text, got, c.Stemmed)
		}
	}
	for _, c := range goldens.Porter {
		if got := Stem(c.Word); got != c.Stem {
			t.Errorf("stem of %s: got %s, want %s", c.Word, got, c.Stem)
		}
	}
	for _, c := range goldens.LengthSimilarity {
		if got := LengthSimilarity(c.A, c.B); got != c.Reward {
			t.Errorf("length similarity of %q and %q: got %v, want %v", c.A, c.B, got, c.Reward)
		}
	}
}

func near(a, b float64) bool { return a-b <= 1e-15 && b-a <= 1e-15 }

func BenchmarkRouge(b *testing.B) {
	text := "the quick brown foxes were jumping over the lazily sleeping dogs while nobody was watching them at all "
	target, prediction := text+text+text, text+"and then "+text
	for b.Loop() {
		Rouge(target, prediction, true)
	}
}

// Texts without line breaks, split by NLTK's Punkt, and rouge_score's rougeLsum of the sentences.
func TestRougeLsumOfSentences(t *testing.T) {
	var goldens struct {
		Cases []struct {
			Target, Prediction  string
			TargetSentences     []string `json:"target_sentences"`
			PredictionSentences []string `json:"prediction_sentences"`

			Plain, Stemmed, Unsplit [3]float64
		}
	}
	golden.JSON(t, "../testdata/rouge_sentences.json", &goldens)
	differ := 0
	for _, c := range goldens.Cases {
		for _, text := range []struct {
			of   string
			want []string
		}{{c.Target, c.TargetSentences}, {c.Prediction, c.PredictionSentences}} {
			if got := strings.Split(SplitSentences(text.of), "\n"); !slices.Equal(got, text.want) {
				t.Errorf("%q: sentences %q, want %q", text.of, got, text.want)
			}
		}
		for _, way := range []struct {
			stem bool
			how  string
			want [3]float64
		}{{false, SentencesSplit, c.Plain}, {true, SentencesSplit, c.Stemmed}, {false, SentencesByLine, c.Unsplit}} {
			s := RougeBySentences(c.Target, c.Prediction, way.stem, way.how).RougeLsum
			golden.Close(t, []float64{s.Precision, s.Recall, s.F1}, way.want[:], 1e-15)
		}
		if c.Plain != c.Unsplit {
			differ++
		}
	}
	if len(goldens.Cases) < 12 || differ < 8 {
		t.Errorf("%d cases, %d of which differ by the way: too few to tell", len(goldens.Cases), differ)
	}
}
