package record

import (
	"strings"

	"fulcrum/reports/page"
)

// SkippedText puts a count of DataSummary.Skipped, which is data that is not used, into words: "3 queries without beams".
func SkippedText(reason string, n int) string {
	who, name, ok := strings.Cut(reason, ": ") // of one phase
	if ok {
		return who + ": " + SkippedText(name, n)
	}
	noun, rest := "", ""
	switch reason {
	case "query_dropped_from_its_pool": // no question may show its own answer
		if noun, rest = "query", "in their own candidate pools"; n == 1 {
			rest = "in its own candidate pool"
		}
	case "query_without_beams":
		noun, rest = "query", "without beams"
	case "query_without_trajectories":
		noun, rest = "query", "without a usable trajectory"
	case "query_without_positive_trajectory":
		noun, rest = "query", "without a correct trajectory (data.require_positive_query)"
	case "query_without_reader_row":
		noun, rest = "query", "without a row in the reward table"
	case "train_query_is_also_in_val_beams":
		noun, rest = "training query", "also in data.val_beams"
	case "candidate_behind_pool_cut":
		noun, rest = "candidate", "with an example behind data.pool_size"
	case "candidate_with_held_out_question":
		noun, rest = "recorded candidate", "with a held-out question or its image (data.pool.held_out)"
	case "query_without_candidates":
		noun, rest = "training query", "without candidates beside held-out questions (data.pool.held_out)"
	case "group_without_two_candidates":
		noun, rest = "recorded group", "of fewer than two candidates beside held-out questions (data.pool.held_out)"
	case "query_without_placebo":
		noun, rest = "training query", "without another query whose pool has the same size (control=placebo)"
	case "candidate_without_task_level":
		noun, rest = "task level", "missing beside known ones of the group: data.reward.levels.task sets these candidates back"
	case "query_without_task_level":
		noun, rest = "query", "without a task level: data.reward.levels.task adds nothing"
	case "trajectory_eval_failed", "trajectory_eval_error":
		noun, rest = "trajectory", "whose evaluation failed"
	case "trajectory_fallback_score":
		noun, rest = "trajectory", "scored by the fallback only (data.skip_fallback)"
	case "key_not_a_number":
		noun, rest = "key", "without a number: a query's key is its id"
	case "item_outside_the_embeddings":
		noun, rest = "item", "beyond the rows of the embedding table"
	case "reader_without_answers":
		noun, rest = "reward table", "for VQA accuracy: items.jsonl or reader_prior.json is not beside it"
	case "record_with_fewer_than_two_completions":
		noun, rest = "record", "with fewer than two completions"
	case "record_that_ends_with_a_user_turn":
		noun, rest = "record", "ending with a user turn"
	case "record_without_an_answer":
		noun, rest = "record", "without an answer"
	case "empty_answers":
		noun = "empty answer"
	case "questions_without_answers":
		noun, rest = "question", "without answers"
	case "annotations_without_question":
		noun, rest = "annotation", "without a question"
	case "questions_cut":
		noun, rest = "question", "beyond the length that the encoder reads"
	case "bad_lines":
		noun, rest = "line", "that cannot be read"
	default:
		return page.Thousands(n) + " " + strings.ReplaceAll(reason, "_", " ")
	}
	return strings.TrimSuffix(page.Plural(n, noun)+" "+rest, " ")
}
