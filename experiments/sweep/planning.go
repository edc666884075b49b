package sweep

import (
	"fmt"
	"io"
	"strings"
	"time"

	"fulcrum/internal/stdout"
)

const (
	planningSilent = 2 * time.Second        // nothing is said of planning that takes less
	planningPlain  = 10 * time.Second       // between plain lines
	planningRedraw = 200 * time.Millisecond // of the updating line
)

// planning tells on stderr how many jobs of a sweep are composed: a line that is rewritten on a terminal, plain lines elsewhere.
type planning struct {
	w        io.Writer // nil: nothing is told
	terminal bool
	now      func() time.Time
	jobs     int // in all
	done     int
	next     time.Time // when there is something to say
	drawn    bool      // the line is on the terminal
}

// planning begins to plan so many jobs, in silence where the sweep's logging.progress is false.
func (p *plan) planning(jobs int) *planning {
	columns, _ := stdout.Errors().Size()
	g := &planning{w: stdout.Errors().Own(), terminal: columns > 0, now: time.Now, jobs: jobs}
	if !p.tells() {
		g.w = nil
	}
	return g.begin()
}

// tells reports whether the sweep shows progress: what its command line says for all jobs, which its primary configuration does not
// hold, or that configuration.
func (p *plan) tells() bool {
	said := ""
	for _, o := range p.req.Overrides {
		if key, value, _ := strings.Cut(strings.TrimLeft(o, "+"), "="); key == "logging.progress" {
			said = value
		}
	}
	if said == "" && p.master != nil {
		if text, err := p.master.YAML("job", true, "logging.progress"); err == nil {
			said = text
		}
	}
	return !strings.EqualFold(strings.TrimSpace(said), "false")
}

func (g *planning) begin() *planning {
	g.next = g.now().Add(planningSilent)
	return g
}

// job counts a job that is composed.
func (g *planning) job() {
	g.done++
	if g.w == nil || g.now().Before(g.next) {
		return
	}
	text := fmt.Sprintf("planning: %d of %d jobs composed", g.done, g.jobs)
	if g.terminal {
		fmt.Fprintf(g.w, "\r\x1b[K%s", text)
		g.drawn, g.next = true, g.now().Add(planningRedraw)
		return
	}
	fmt.Fprintln(g.w, text)
	g.next = g.now().Add(planningPlain)
}

// end takes the line away.
func (g *planning) end() {
	if g.drawn {
		fmt.Fprint(g.w, "\r\x1b[K")
	}
}
