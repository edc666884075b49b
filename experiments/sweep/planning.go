package sweep

import (
	"fmt"
	"strings"
	"time"

	"fulcrum/internal/stdout"
)

// planningEvery is how often a line says how many jobs of a sweep are composed; less planning is done in silence.
const planningEvery = 5 * time.Second

// planning tells on stderr how many jobs of a sweep are composed.
type planning struct {
	told       bool // else nothing is
	jobs, done int
	next       time.Time // when there is something to say
}

// planning begins to plan so many jobs, in silence where the sweep's logging.progress is false.
func (p *plan) planning(jobs int) *planning {
	return &planning{told: p.tells(), jobs: jobs, next: time.Now().Add(planningEvery)}
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

// job counts a job that is composed.
func (g *planning) job() {
	if line := g.count(time.Now()); line != "" {
		stdout.Message(stdout.Errors(), line)
	}
}

// count counts a job and returns what is to be said then; "" for nothing.
func (g *planning) count(now time.Time) string {
	g.done++
	if !g.told || now.Before(g.next) {
		return ""
	}
	g.next = now.Add(planningEvery)
	return fmt.Sprintf("planning: %d of %d jobs composed", g.done, g.jobs)
}
