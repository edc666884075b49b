package bench

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
)

// PeerMeasurement is what the peer program found: the same mathematics, written by hand in PyTorch.
type PeerMeasurement struct {
	PerSecond float64 `json:"median_queries_per_s"`
	PerCPU    float64 `json:"median_queries_per_cpu_s"`
	PeakMB    float64 `json:"peak_rss_mb"`
}

// FindPython returns a Python that has torch: want, else the first of the usual ones, else "".
func FindPython(want string) string {
	candidates := []string{want}
	if want == "" {
		candidates = []string{"python3", "/usr/bin/python3"}
	}
	for _, python := range candidates {
		probe := exec.Command(python, "-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)")
		if probe.Run() == nil {
			return python
		}
	}
	return ""
}

// measurePeer runs the peer once on the workload, on its own data of the same distribution.
func (o Options) measurePeer(ctx context.Context, w Workload, v variant) (PeerMeasurement, error) {
	args := []string{o.Python, o.Peer, "--threads", strconv.Itoa(o.Threads), "--dropout", "0", "--repeat", "1", "--scenarios",
		w.Peer, "--phases", v.phase}
	if w.PeerBatch > 0 {
		args = append(args, "--rl_batch", strconv.Itoa(w.PeerBatch))
	}
	var report struct {
		Results []PeerMeasurement `json:"results"`
	}
	if err := ask(ctx, &report, func() bool { return len(report.Results) == 1 }, args...); err != nil {
		return PeerMeasurement{}, fmt.Errorf("%s: %w", filepath.Base(o.Peer), err)
	}
	return report.Results[0], nil
}
