package torchx

// #include "csrc/fulcrum_torch.h"
// #include "csrc/sample.h"
import "C"
import "cmp"

// Drawn are the tokens of DrawTokens.
type Drawn struct {
	IDs  Tensor // [R] int64
	Kept Tensor // [R] float64, as SampleTokens has it; undefined where they are greedy
	// LogP [R] float64 is the log-probability of each token in the row's own distribution at the temperature, before anything
	// was suppressed or left out. Greedy tokens have theirs at temperature 1 where it was asked for.
	LogP Tensor
}

// DrawTokens is SampleTokens, without min-p, on the device of logits [R, V] float32, which it overwrites: nothing is copied to the
// host. seen [R, V] bool marks the tokens that the repetition penalty counts, suppress [n] int64 is never drawn, uniforms [R] float64
// are the cumulative probabilities; without them tokens are greedy, and scored asks for their log-probabilities. Each may be no
// tensor. Probabilities are float32: a uniform within their rounding of a token's border may give its neighbour.
func DrawTokens(logits Tensor, opt SampleOptions, seen, suppress, uniforms Tensor, scored bool) Drawn {
	must("draw", logits)
	temperature, penalty := cmp.Or(opt.Temperature, 1), opt.RepetitionPenalty
	if penalty == 0 || penalty == 1 {
		penalty, seen = 1, Tensor{}
	}
	var ids, kept, logp C.Tensor
	check("draw", C.fc_draw_tokens(logits.c(), seen.c(), suppress.c(), uniforms.c(), C.double(temperature), C.double(opt.TopP),
		C.int64_t(opt.TopK), C.double(penalty), C.bool(scored), &ids, &kept, &logp), logits, uniforms)
	d := Drawn{IDs: adopt(ids)}
	if kept != nil {
		d.Kept = adopt(kept)
	}
	if logp != nil {
		d.LogP = adopt(logp)
	}
	return d
}

// MarkSeen sets seen[r][ids[r]] in place; seen is bool [R, V], ids int64 [R].
func MarkSeen(seen, ids Tensor) {
	must("mark_seen", seen, ids)
	check("mark_seen", C.fc_mark_seen(seen.c(), ids.c()), seen, ids)
}

// IsAny returns [R] bool: whether x[r] is one of values [n].
func IsAny(x, values Tensor) Tensor {
	return made("is_any", func(out *C.Tensor) *C.char { return C.fc_is_any(x.c(), values.c(), out) }, x, values)
}

// Advance adds n to integers in place.
func Advance(x Tensor, n int) {
	must("add", x)
	check("add", C.fc_add_in_place(x.c(), C.int64_t(n)), x)
}
