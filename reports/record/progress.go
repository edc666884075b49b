package record

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"fulcrum/internal/stdout"
	"fulcrum/internal/visible"
	"fulcrum/reports/page"
)

// PhasePlan says how long a phase will be, for "step 120/400" and the remaining time.
type PhasePlan struct {
	Name          string
	Epochs        int
	StepsPerEpoch int
}

const (
	redrawEvery = 100 * time.Millisecond // of the updating line
	plainEvery  = 10 * time.Second       // between plain lines of one epoch
)

// Progress shows the training on stderr. On a terminal one line is rewritten in place; elsewhere
// plain lines appear at each epoch and every plainEvery.
type Progress struct {
	w      io.Writer
	screen screen // w where it is a terminal, or nil
	colour bool
	now    func() time.Time

	Plan    []PhasePlan
	phase   string
	started time.Time // of the phase, in this process
	first   int       // steps of the phase before started
	shown   time.Time
	line    bool // an unfinished line is on the terminal
}

// screen is a stdout.Stream that may be a terminal.
type screen interface {
	Control(text string)
	Size() (columns, lines int)
}

func newProgress(w io.Writer, now func() time.Time) *Progress {
	p := &Progress{w: w, now: now}
	if s, ok := w.(screen); ok {
		if columns, _ := s.Size(); columns > 0 {
			p.screen, p.colour = s, os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
		}
	}
	return p
}

func (p *Progress) planned(phase string) PhasePlan {
	for _, plan := range p.Plan {
		if plan.Name == phase {
			return plan
		}
	}
	return PhasePlan{Name: phase}
}

// step shows a step row, if it is time to.
func (p *Progress) step(r Row) {
	now := p.now()
	if r.Phase != p.phase {
		// The first step's own time counts: its row comes at its end.
		seconds, _ := r.Number("step_seconds")
		p.phase, p.first = r.Phase, r.Step-1
		p.started = now.Add(-time.Duration(seconds * float64(time.Second)))
		p.shown = p.started
	}
	every := plainEvery
	if p.screen != nil {
		every = redrawEvery
	}
	if now.Sub(p.shown) < every {
		return
	}
	p.shown = now
	perStep := now.Sub(p.started).Seconds() / float64(r.Step-p.first)
	eta := ""
	if left := p.stepsLeft(r); left > 0 {
		eta = "  eta " + page.Duration(perStep*float64(left))
	}
	line := p.stepLine(r, eta) + "  " + page.Duration(perStep) + "/step"
	if p.screen == nil {
		fmt.Fprintln(p.w, line)
		return
	}
	line = visible.Text(line)
	if columns, _ := p.screen.Size(); columns > 0 {
		text := []rune(line)
		line = string(text[:min(len(text), columns-1)])
	}
	if rest, ok := strings.CutPrefix(line, r.Phase); ok && p.colour {
		line = "\x1b[1m" + r.Phase + "\x1b[0m" + rest
	}
	p.screen.Control("\r\x1b[K" + line)
	p.line = true
}

// stepsLeft counts the steps from r to the end of the plan; the rate of this phase is used for all.
func (p *Progress) stepsLeft(r Row) int {
	left, found := 0, false
	for _, plan := range p.Plan {
		steps := plan.Epochs * plan.StepsPerEpoch
		switch {
		case plan.Name == r.Phase:
			found = true
			left += max(steps-r.Step, 0)
		case found:
			left += steps
		}
	}
	return left
}

// stepLine is: rce  epoch 1/5  step 20/400  loss 2.104  temp 1.90; of GRPO, whose loss is near zero by its construction, what the samples
// earn: grpo  epoch 2/10  step 120/400  eta 3m2s  reward 0.412  kl 0.041  beta 0.10  clip 6.2%, of token policies with  len 3.2. What
// people look at stands first: a small terminal cuts the end.
func (p *Progress) stepLine(r Row, eta string) string {
	plan := p.planned(r.Phase)
	var b strings.Builder
	fmt.Fprintf(&b, "%s  step %s%s", p.head(r), outOf(r.Step, plan.Epochs*plan.StepsPerEpoch), eta)
	type column struct {
		label, field string
		width        int
		format       func(float64) string
	}
	columns := []column{
		{"reward", "mean_reward", 6, func(x float64) string { return page.Sig(x, 3) }},
		{"loss", "loss", 7, func(x float64) string { return page.Sig(x, 4) }},
		{"temp", "temperature", 5, func(x float64) string { return page.Sig(x, 3) }},
		{"kl", "kl", 7, func(x float64) string { return page.Nats(x, 3) }},
		{"beta", "kl_beta", 6, func(x float64) string { return page.Sig(x, 2) }},
		{"clip", "clip_fraction", 5, page.Percent},
		{"len", "completion_length", 4, func(x float64) string { return page.Sig(x, 3) }},
	}
	for _, column := range columns {
		if x, ok := r.Number(column.field); ok && !(column.field == "loss" && r.Rewarded()) {
			fmt.Fprintf(&b, "  %s %-*s", column.label, column.width, column.format(x))
		}
	}
	return strings.TrimRight(b.String(), " ")
}

// Rewarded reports whether a row says what its candidates earned: then its loss says nothing.
func (r Row) Rewarded() bool {
	_, ok := r.Number("mean_reward")
	return ok
}

// LogLine is what run.log says of a row that is no step: its logger, its level and its message.
func (p *Progress) LogLine(r Row) (name string, level Level, message string) {
	switch r.Kind {
	case KindEpoch:
		return r.Phase, LevelInfo, p.epochLine(r)
	case KindEval:
		return "eval", LevelInfo, p.evalLine(r)
	}
	level, message = LevelInfo, r.Text("message")
	switch r.Text("severity") {
	case "warning":
		level, message = LevelWarning, "warning: "+message
	case "error", "stop":
		level, message = LevelError, "error: "+message
	}
	return cmp.Or(r.Phase, "run"), level, message
}

func (p *Progress) epochLine(r Row) string {
	var b strings.Builder
	b.WriteString(p.head(r) + "  done")
	for _, name := range []string{"val_reward", "val_accuracy", "val_recorded_reward", "kl", "val_kl", "kl_beta", "loss", "val_loss"} {
		if x, ok := r.Number(name); ok && !(strings.HasSuffix(name, "loss") && r.Rewarded()) {
			fmt.Fprintf(&b, "  %s %-7s", name, lineNumber(r, name, x))
		}
	}
	if name := r.Text("checkpoint"); name != "" {
		b.WriteString("  " + name)
	}
	return strings.TrimRight(b.String(), " ")
}

// evalLine is: eval  dev  similarity  reward 0.08410  accuracy 0.1386.
func (p *Progress) evalLine(r Row) string {
	line := "eval  " + r.Text("split") + "  " + r.Text("policy")
	for _, name := range []string{"reward", "accuracy", "recorded_reward", "top1_accuracy", "pair_accuracy", "cider", "rougeL", "loss", "kl"} {
		if x, ok := r.Number(name); ok {
			line += "  " + name + " " + lineNumber(r, name, x)
		}
	}
	return line
}

// lineNumber writes a number of a row for a line; of a KL that the row knows it of, also to which policy.
func lineNumber(r Row, name string, x float64) string {
	if name != "kl" && name != "val_kl" {
		return page.Sig(x, 4)
	}
	if _, val := r.Fields["val_kl"]; name == "kl" && val {
		return page.Nats(x, 4)
	}
	return page.Nats(x, 4) + KLTo(r)
}

// KLTo says which policy the KL of an epoch or an evaluation is measured against: " to the initial policy"; "" where the row does not know.
func KLTo(r Row) string {
	switch reference := r.Text("kl_reference"); reference {
	case "":
		return ""
	case PolicyInit:
		return " to the initial policy"
	case "synced":
		return " to the synced reference"
	default: // phase_start, epoch_start
		return " to the " + strings.Replace(reference, "_", "'s ", 1)
	}
}

func (p *Progress) head(r Row) string {
	width := len(r.Phase)
	for _, plan := range p.Plan {
		width = max(width, len(plan.Name))
	}
	return fmt.Sprintf("%-*s  epoch %s", width, r.Phase, outOf(r.Epoch, p.planned(r.Phase).Epochs))
}

// outOf writes 120/400, padded so that columns stay in place, or 120 when the total is unknown.
func outOf(n, total int) string {
	if total <= 0 {
		return fmt.Sprint(n)
	}
	t := fmt.Sprint(total)
	return fmt.Sprintf("%*d/%s", len(t), n, t)
}

// print writes a whole line, moving the updating line out of its way.
func (p *Progress) print(line string, level Level) {
	p.clear()
	if p.screen == nil {
		fmt.Fprintln(p.w, visible.Text(line))
		return
	}
	columns, _ := p.screen.Size()
	line = stdout.Fold(visible.Text(line), columns, 4)
	if p.colour && level != LevelInfo && level != LevelDebug {
		line = "\x1b[33m" + line + "\x1b[0m"
	}
	p.screen.Control(line + "\n")
}

func (p *Progress) clear() {
	if p.line {
		p.screen.Control("\r\x1b[K")
		p.line = false
	}
}
