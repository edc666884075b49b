package phases

import (
	"slices"

	"fulcrum/internal/ranks"
	"fulcrum/internal/torchx"
)

// On the host the gradient of a process's last shard leaves it while the backward pass makes it, from the last layers to the first: over a
// slow network that is the time of the pass. The bytes are those of an exchange behind the pass.

// earlyFrom is the number of trained weights from which that is worth a message more.
const earlyFrom = 1 << 19

// early is an exchange that begins during the backward pass.
type early struct {
	by       *torchx.Sender
	earlier  []*torchx.Tensor // sums of this process's shards, of which the newest wait for that of the last shard
	waiting  int              // their number
	receives []func() error   // by round
	takes    []func(nodes []ranks.Node[*torchx.Tensor], add bool)
	sent     func() error
	late     bool
	err      error
}

// newEarly returns nil where the exchange begins behind the pass.
func newEarly(l *Learner) *early {
	gloo, ok := l.env.Peers.(*torchx.Gloo)
	if !ok || l.Params.Grad().OnCUDA() || l.env.Backwards || l.Params.Numel() < earlyFrom {
		return nil
	}
	if l.sender == nil {
		l.sender = gloo.Sender(l.Params)
	}
	nodes := l.env.nodes(l.env.Ranks.Rank())
	last := nodes[len(nodes)-1]
	return &early{by: l.sender, waiting: ranks.Spine(last.From, last.To)}
}

// during makes the passes of a shard. Those of the last begin the exchange.
func (e *early) during(g *gradients, last bool, passes func()) {
	var parts []torchx.SentPart
	var sums []torchx.Tensor
	if last {
		node := len(e.earlier) - e.waiting
		if parts, e.err = e.begin(g, node); e.err != nil {
			return
		}
		for _, sum := range slices.Backward(e.earlier[node:]) {
			sums = append(sums, *sum)
		}
	}
	e.by.Start(parts, sums)
	passes()
	e.sent, e.late, e.err = e.by.End()
}

// begin begins to receive, and returns what is to be sent of the node of the last shard.
func (e *early) begin(g *gradients, node int) (parts []torchx.SentPart, err error) {
	l := g.of
	for round := range l.rounds() {
		receive, take := g.receive(round)
		wait, err := l.env.Peers.Exchange(nil, receive)
		if err != nil {
			return nil, err
		}
		e.receives, e.takes = append(e.receives, wait), append(e.takes, take)
		for rank := range l.env.Ranks.Size() {
			of := l.sliceOf(rank, round)
			if of.From < of.To && rank != l.env.Ranks.Rank() {
				parts = append(parts, torchx.SentPart{From: of.From, To: of.To, Rank: rank, Tag: tagOf(round, node)})
			}
		}
	}
	return parts, nil
}

// finish ends the exchange. done is false where some of what was sent was not finished, so that all has to be sent again.
func (e *early) finish(name string, g *gradients, nodes []ranks.Node[*torchx.Tensor]) (done bool, err error) {
	l := g.of
	late, err := ranks.Gather(l.env.Ranks, "the end of a pass", e.late, l.env.Ranks.Why(e.err))
	if err != nil {
		return false, err
	}
	done = !slices.Contains(late, true)
	return done, l.env.Ranks.Do(name, func() error {
		defer torchx.Scope()()
		var rest []torchx.Addressed
		for round := range e.receives {
			rest = append(rest, g.send(round, nodes[:len(nodes)-1])...)
		}
		gone, err := l.env.Peers.Exchange(rest, nil)
		if err != nil {
			return err
		}
		for round, wait := range e.receives {
			if err := wait(); err != nil {
				return err
			}
			e.takes[round](nodes, done)
		}
		if err := e.sent(); err != nil {
			return err
		}
		return gone()
	})
}
