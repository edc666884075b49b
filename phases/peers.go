package phases

import (
	"slices"
	"time"

	"fulcrum/internal/ranks"
	"fulcrum/internal/torchx"
	"fulcrum/internal/usage"
)

// The gradient and the weights of a step go from process to process by gloo or NCCL (parallel.backend). All else is said by messages, which
// are few and small: they tell an operation that waits for a dead process to end.

// JoinPeers lets the processes of a run exchange tensors, by NCCL each on its device. The processes call it together.
func (e *Env) JoinPeers(backend, device string) error {
	join := e.joinGloo
	if backend == "nccl" {
		join = func() (torchx.Peers, error) { return e.joinNCCL(device) }
	}
	var joined torchx.Peers
	over := make(chan error, 1)
	go func() { // it may outlive the run, where it waits for a process
		var err error
		joined, err = join()
		over <- err
	}()
	select {
	case err := <-over:
		if err != nil {
			err = usage.Errorf("parallel.backend=%s: %v", backend, err)
			e.Ranks.Close(err) // the others wait for this one
			return e.Ranks.Why(err)
		}
	case <-e.Ranks.Ended(): // what waits ends with the process
		return e.Ranks.Why(nil)
	}
	e.Peers = joined
	go attend(e.Ranks, joined)
	return nil
}

func (e *Env) joinGloo() (torchx.Peers, error) {
	all, err := e.Ranks.Addresses()
	if err != nil {
		return nil, err
	}
	g, port := (*torchx.Gloo)(nil), 0
	if e.Ranks.First() {
		g, port, err = torchx.GlooStore(all[0], 0, true)
	}
	if port, err = ranks.Share(e.Ranks, "the start of gloo", port, err); err == nil && g == nil {
		g, _, err = torchx.GlooStore(all[0], port, false)
	}
	if err != nil {
		return nil, err
	}
	return g, g.Join(all[e.Ranks.Rank()], e.Ranks.Rank(), e.Ranks.Size())
}

func (e *Env) joinNCCL(device string) (torchx.Peers, error) {
	var id []byte
	_, err := torchx.NCCLVersion()
	if err == nil && e.Ranks.First() {
		id, err = torchx.NewNCCLID()
	}
	if id, err = ranks.Share(e.Ranks, "the start of NCCL", id, err); err != nil {
		return nil, err
	}
	return torchx.JoinNCCL(id, e.Ranks.Rank(), e.Ranks.Size(), device)
}

// attend ends what waits for a process when the run ends, and the run when an exchange has failed.
func attend(group *ranks.Group, peers torchx.Peers) {
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		select {
		case <-group.Ended():
			peers.Abort()
			return
		case <-every.C:
			if err := peers.Err(); err != nil {
				group.Close(err)
			}
		}
	}
}

// A process updates its share of the weights: it gets the others' gradients of that, and gives them what becomes of it.

// slice is what a round exchanges of a process's share: no message is as large as the model.
const slice = 1 << 20

// sliceOf is the part of a process's share that a round exchanges; it may be empty.
func (l *Learner) sliceOf(rank, round int) Span {
	from, to := l.Params.Share(rank, l.env.Ranks.Size())
	from = min(from+round*slice, to)
	return Span{from, min(from+slice, to)}
}

// rounds is their number.
func (l *Learner) rounds() (n int) {
	size := l.env.Ranks.Size()
	for rank := range size {
		from, to := l.Params.Share(rank, size)
		n = max(n, (to-from+slice-1)/slice)
	}
	return n
}

// inRounds makes an exchange of all processes' shares in rounds. take uses what a round has received, while the next is under way.
func (l *Learner) inRounds(name string, begin func(round int) (send, receive []torchx.Addressed, take func())) error {
	return l.env.Ranks.Do(name, func() (err error) {
		defer torchx.Scope()()
		last := func() error { return nil }
		for round := range l.rounds() {
			send, receive, take := begin(round)
			wait, err := l.env.Peers.Exchange(send, receive)
			if err == nil {
				err = last()
			}
			if err != nil {
				return err
			}
			last = func() error {
				err := wait()
				if err == nil {
					take()
				}
				return err
			}
		}
		return last()
	})
}

// sum puts the sum of all shards into the gradient of this process's share. nodes are the sums of this process's shards, which it frees.
func (g *gradients) sum(nodes []ranks.Node[*torchx.Tensor]) error {
	if g.of.env.Ranks == nil { // one node, in the buffer
		return nil
	}
	defer func() {
		for _, node := range nodes {
			node.Sum.Free()
		}
	}()
	const name = "the gradient of a step"
	if g.early != nil {
		done, err := g.early.finish(name, g, nodes)
		if done || err != nil {
			return err
		}
	}
	return g.of.inRounds(name, func(round int) (send, receive []torchx.Addressed, take func()) {
		receive, used := g.receive(round)
		return g.send(round, nodes), receive, func() { used(nodes, true) }
	})
}

// send is what a round sends of the sums of this process's shards.
func (g *gradients) send(round int, nodes []ranks.Node[*torchx.Tensor]) (send []torchx.Addressed) {
	for rank := range g.of.env.Ranks.Size() {
		for i, node := range nodes {
			if rank != g.of.env.Ranks.Rank() {
				send = addressed(send, partOf(g.at(node.Sum), g.of.sliceOf(rank, round)), rank, tagOf(round, i))
			}
		}
	}
	return send
}

// receive is what a round receives of others' sums; take adds them to those of this process, or lets them go.
func (g *gradients) receive(round int) (receive []torchx.Addressed, take func(nodes []ranks.Node[*torchx.Tensor], add bool)) {
	l, grad, own := g.of, g.of.Params.Grad(), g.of.env.Ranks.Rank()
	mine, theirs := l.sliceOf(own, round), make([][]torchx.Tensor, l.env.Ranks.Size())
	for rank := range theirs {
		for i := range l.env.nodes(rank) {
			if rank != own {
				x := torchx.Own(torchx.FullLike(grad, 0, grad.DType(), mine.To-mine.From))
				theirs[rank] = append(theirs[rank], x)
				receive = addressed(receive, x, rank, tagOf(round, i))
			}
		}
	}
	return receive, func(nodes []ranks.Node[*torchx.Tensor], add bool) {
		defer torchx.Scope()()
		if add {
			torchx.Copy(partOf(grad, mine), l.sumOf(func(rank, i int) torchx.Tensor {
				if rank == own {
					return partOf(g.at(nodes[i].Sum), mine)
				}
				return theirs[rank][i]
			}))
		}
		for _, x := range slices.Concat(theirs...) {
			x.Free()
		}
	}
}

// tagOf tells the slices of a process's nodes apart.
func tagOf(round, node int) int { return 64*round + node }

// spread gives every process the weights that each has updated.
func (l *Learner) spread() error {
	group, weights := l.env.Ranks, l.Params.Flat()
	return l.inRounds("the weights of a step", func(round int) (send, receive []torchx.Addressed, take func()) {
		for rank := range group.Size() {
			if rank != group.Rank() {
				send = addressed(send, partOf(weights, l.sliceOf(group.Rank(), round)), rank, round)
				receive = addressed(receive, partOf(weights, l.sliceOf(rank, round)), rank, round)
			}
		}
		return send, receive, func() {}
	})
}

// addressed adds a tensor that is not empty.
func addressed(all []torchx.Addressed, x torchx.Tensor, rank, tag int) []torchx.Addressed {
	if x.Numel() > 0 {
		all = append(all, torchx.Addressed{Tensor: x, Rank: rank, Tag: tag})
	}
	return all
}
