package phases

import (
	"time"

	"fulcrum/internal/ranks"
	"fulcrum/internal/torchx"
	"fulcrum/internal/usage"
)

// The gradient and the weights of a step may go from GPU to GPU (parallel.backend=nccl). All else is said by messages, which are few and
// small: they tell an operation that waits for a dead process to end.

// JoinDevices lets the processes of a run, each on its device, exchange tensors by NCCL. The processes call it together.
func (e *Env) JoinDevices(device string) error {
	said := func(err error) error {
		if err != nil {
			err = usage.Errorf("parallel.backend=nccl: %v; tcp does without it", err)
		}
		return err
	}
	var id []byte
	_, err := torchx.NCCLVersion()
	if err == nil && e.Ranks.First() {
		id, err = torchx.NewNCCLID()
	}
	if id, err = ranks.Share(e.Ranks, "the start of NCCL", id, said(err)); err != nil {
		return err
	}
	var n *torchx.NCCL
	joined := make(chan error, 1)
	go func() { // it may outlive the run, where NCCL waits
		var err error
		n, err = torchx.JoinNCCL(id, e.Ranks.Rank(), e.Ranks.Size(), device)
		joined <- err
	}()
	select {
	case err = <-joined:
		e.Devices = n
	case <-e.Ranks.Ended(): // what waits in NCCL ends with the process
		return e.Ranks.Why(nil)
	}
	if err = said(err); err != nil {
		e.Ranks.Close(err) // the others wait in NCCL
		return e.Ranks.Why(err)
	}
	go attend(e.Ranks, e.Devices)
	return nil
}

// attend ends what waits in NCCL when the run ends, and the run when NCCL has failed.
func attend(group *ranks.Group, by *torchx.NCCL) {
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		select {
		case <-group.Ended():
			by.Abort()
			return
		case <-every.C:
			if err := by.Err(); err != nil {
				group.Close(err)
			}
		}
	}
}

// sumOnDevices puts the sum of a piece into the gradient, as sum does.
func (g *gradients) sumOnDevices(nodes []ranks.Node[*torchx.Tensor], piece Span) (err error) {
	defer torchx.Scope()()
	l, group, by := g.of, g.of.env.Ranks, g.of.env.Devices
	grad := l.Params.Grad()
	if !group.First() {
		for _, node := range nodes {
			if err := by.Send(partOf(g.at(node.Sum), piece), 0); err != nil {
				return err
			}
		}
		if own := l.share(group.Rank(), piece); own.From < own.To {
			return by.Receive(partOf(grad, own), 0)
		}
		return nil
	}
	sum := l.sumOf(func(rank, i int) torchx.Tensor {
		if rank == 0 {
			return partOf(g.at(nodes[i].Sum), piece)
		}
		x := torchx.FullLike(grad, 0, grad.DType(), piece.To-piece.From)
		if err == nil {
			err = by.Receive(x, rank)
		}
		return x
	})
	torchx.Copy(partOf(grad, piece), sum)
	for rank := 1; rank < group.Size() && err == nil; rank++ {
		if own := l.share(rank, piece); own.From < own.To {
			err = by.Send(partOf(grad, own), rank)
		}
	}
	return err
}

// spreadOnDevices gives every process the weights that each has updated.
func (l *Learner) spreadOnDevices() error {
	defer torchx.Scope()()
	size := l.env.Ranks.Size()
	for rank := range size {
		if from, to := l.Params.Share(rank, size); from < to {
			if err := l.env.Devices.Broadcast(partOf(l.Params.Flat(), Span{from, to}), rank); err != nil {
				return err
			}
		}
	}
	return nil
}
