package record

import (
	"slices"
	"strings"

	"fulcrum/reports/page"
)

// SkippedText puts a count of DataSummary.Skipped, which is data that is not used, into words: "3 queries without beams".
func SkippedText(reason string, n int) string {
	who, name, ok := strings.Cut(reason, ": ") // of one phase
	if ok {
		return who + ": " + SkippedText(name, n)
	}
	table := skippedWords()
	at := slices.IndexFunc(table, func(row [3]string) bool { return row[0] == reason })
	if at < 0 {
		return page.Thousands(n) + " " + strings.ReplaceAll(reason, "_", " ")
	}
	noun, rest := table[at][1], table[at][2]
	if reason == "query_dropped_from_its_pool" && n == 1 {
		rest = "in its own candidate pool"
	}
	return strings.TrimSuffix(page.Plural(n, noun)+" "+rest, " ")
}

// skippedWords lists reasons, what one of the skipped is, and what is wrong with it.
func skippedWords() [][3]string {
	return [][3]string{
		{"query_dropped_from_its_pool", "query", "in their own candidate pools"}, // no question may show its own answer
		{"query_without_beams", "query", "without beams"},
		{"query_without_trajectories", "query", "without a usable trajectory"},
		{"query_without_positive_trajectory", "query", "without a correct trajectory (data.require_positive_query)"},
		{"query_without_reader_row", "query", "without a row in the reward table"},
		{"train_query_is_also_in_val_beams", "training query", "also in data.val_beams"},
		{"candidate_behind_pool_cut", "candidate", "with an example behind data.pool_size"},
		{"candidate_with_held_out_question", "recorded candidate", "with a held-out question or its image (data.pool.held_out)"},
		{"query_without_candidates", "training query", "without candidates beside held-out questions (data.pool.held_out)"},
		{"group_without_two_candidates", "recorded group", "of fewer than two candidates beside held-out questions (data.pool.held_out)"},
		{"query_without_placebo", "training query", "without another query whose pool has the same size (control=placebo)"},
		{"candidate_without_task_level", "task level",
			"missing beside known ones of the group: data.reward.levels.task sets these candidates back"},
		{"query_without_task_level", "query", "without a task level: data.reward.levels.task adds nothing"},
		{"trajectory_eval_failed", "trajectory", "whose evaluation failed"},
		{"trajectory_eval_error", "trajectory", "whose evaluation failed"},
		{"trajectory_fallback_score", "trajectory", "scored by the fallback only (data.skip_fallback)"},
		{"key_not_a_number", "key", "without a number: a query's key is its id"},
		{"item_outside_the_embeddings", "item", "beyond the rows of the embedding table"},
		{"reader_without_answers", "reward table", "for VQA accuracy: items.jsonl or reader_prior.json is not beside it"},
		{"record_with_fewer_than_two_completions", "record", "with fewer than two completions"},
		{"record_that_ends_with_a_user_turn", "record", "ending with a user turn"},
		{"record_without_an_answer", "record", "without an answer"},
		{"empty_answers", "empty answer"},
		{"questions_without_answers", "question", "without answers"},
		{"annotations_without_question", "annotation", "without a question"},
		{"questions_cut", "question", "beyond the length that the encoder reads"},
		{"bad_lines", "line", "that cannot be read"},
	}
}
