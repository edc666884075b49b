package phases

import (
	"slices"

	"fulcrum/internal/ranks"
	"fulcrum/internal/torchx"
)

// On the host the gradient of a process's last shard leaves it while the backward pass makes it, from the last layers to the first: over a
// slow network that is the time of the pass. The bytes are those of an exchange behind the pass.

// aheadFrom is the number of trained weights from which that is worth a message more.
const aheadFrom = 1 << 19

// ahead is an exchange that begins during the backward pass.
type ahead struct {
	by       *torchx.Ahead
	earlier  []*torchx.Tensor // sums of this process's shards, of which the newest wait for that of the last shard
	waiting  int              // their number
	receives []func() error   // by round
	takes    []func(nodes []ranks.Node[*torchx.Tensor], add bool)
	sent     func() error
	late     bool
	err      error
}

// newAhead returns nil where the exchange begins behind the pass.
func newAhead(l *Learner) *ahead {
	gloo, ok := l.env.Peers.(*torchx.Gloo)
	if !ok || l.Params.Grad().OnCUDA() || l.env.Backwards || l.Params.Numel() < aheadFrom {
		return nil
	}
	if l.sender == nil {
		l.sender = gloo.Ahead(l.Params)
	}
	nodes := l.env.nodes(l.env.Ranks.Rank())
	last := nodes[len(nodes)-1]
	return &ahead{by: l.sender, waiting: ranks.Spine(last.From, last.To)}
}

// during makes the passes of a shard. Those of the last begin the exchange.
func (a *ahead) during(g *gradients, last bool, passes func()) {
	var parts []torchx.AheadPart
	var sums []torchx.Tensor
	if last {
		node := len(a.earlier) - a.waiting
		if parts, a.err = a.begin(g, node); a.err != nil {
			return
		}
		for _, sum := range slices.Backward(a.earlier[node:]) {
			sums = append(sums, *sum)
		}
	}
	a.by.Start(parts, sums)
	passes()
	a.sent, a.late, a.err = a.by.End()
}

// begin begins to receive, and returns what is to be sent of the node of the last shard.
func (a *ahead) begin(g *gradients, node int) (parts []torchx.AheadPart, err error) {
	l := g.of
	for round := range l.rounds() {
		receive, take := g.receive(round)
		wait, err := l.env.Peers.Exchange(nil, receive)
		if err != nil {
			return nil, err
		}
		a.receives, a.takes = append(a.receives, wait), append(a.takes, take)
		for rank := range l.env.Ranks.Size() {
			of := l.sliceOf(rank, round)
			if of.From < of.To && rank != l.env.Ranks.Rank() {
				parts = append(parts, torchx.AheadPart{From: of.From, To: of.To, Rank: rank, Tag: tagOf(round, node)})
			}
		}
	}
	return parts, nil
}

// finish ends the exchange. done is false where some of what was sent was not finished, so that all has to be sent again.
func (a *ahead) finish(name string, g *gradients, nodes []ranks.Node[*torchx.Tensor]) (done bool, err error) {
	l := g.of
	late, err := ranks.Gather(l.env.Ranks, "the end of a pass", a.late, l.env.Ranks.Why(a.err))
	if err != nil {
		return false, err
	}
	done = !slices.Contains(late, true)
	return done, l.env.Ranks.Do(name, func() error {
		defer torchx.Scope()()
		var rest []torchx.Addressed
		for round := range a.receives {
			rest = append(rest, g.send(round, nodes[:len(nodes)-1])...)
		}
		gone, err := l.env.Peers.Exchange(rest, nil)
		if err != nil {
			return err
		}
		for round, wait := range a.receives {
			if err := wait(); err != nil {
				return err
			}
			a.takes[round](nodes, done)
		}
		if err := a.sent(); err != nil {
			return err
		}
		return gone()
	})
}
