package stats_test

import (
	"fmt"
	"strings"

	"fulcrum/reports/stats"
)

func ExampleComparePaired() {
	similarity := []float64{0, 0, 0.1, 0, 0.4, 0, 0, 0.2, 0, 0.3, 0, 0.1}
	trained := []float64{0, 0.3, 0.2, 0, 0.6, 0.1, 0, 0.4, 0.2, 0.5, 0.1, 0.3}
	p, err := stats.ComparePaired(trained, similarity, nil, stats.DefaultOptions())
	if err != nil {
		panic(err)
	}
	sentence := p.Sentence("the trained policy", "similarity", "reward")
	fmt.Println(strings.NewReplacer(": +", ":\n+", "; ", ";\n").Replace(sentence))
	// Output:
	// the trained policy is better than similarity:
	// +0.133 reward per question, 95% interval +0.071 to +0.196, 12 questions, p = 0.0039;
	// rough: 12 independent questions are few, and what happens on less than 25% of all may not show
}
