package ranks

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// Place is what a process is told about its run by whoever has started it.
type Place struct {
	Rank, Size int
	Local      int    // number among the processes on this machine
	By         string // run (our own start), torchrun or srun
	Address    string // where rank 0 listens: host:port
	Secret     string // that the processes of a run share
	Store      bool   // Address is torchrun's store, which knows where rank 0 listens
	failed     string // why this process comes to say that it does not take part
}

// Variables of our own start.
const (
	rankVariable    = "FULCRUM_RANK"
	sizeVariable    = "FULCRUM_RANKS"
	addressVariable = "FULCRUM_RANKS_AT"
	secretVariable  = "FULCRUM_RANKS_SECRET"
)

// Here returns the place that the environment gives this process; nil: it is alone. An error names the variable.
func Here() (*Place, error) {
	switch {
	case os.Getenv(rankVariable) != "":
		return place("run", rankVariable, sizeVariable, rankVariable, os.Getenv(addressVariable), os.Getenv(secretVariable))
	case os.Getenv("RANK") != "" && os.Getenv("WORLD_SIZE") != "":
		if os.Getenv("MASTER_ADDR") == "" && os.Getenv("WORLD_SIZE") != "1" {
			return nil, errors.New("RANK and WORLD_SIZE are set, as torchrun does, and MASTER_ADDR is not: want all three, or none")
		}
		p, err := place("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK",
			os.Getenv("MASTER_ADDR")+":"+os.Getenv("MASTER_PORT"),
			os.Getenv("TORCHELASTIC_RUN_ID")+"/"+os.Getenv("TORCHELASTIC_RESTART_COUNT"))
		if p != nil {
			p.Store = os.Getenv("TORCHELASTIC_USE_AGENT_STORE") == "True"
			if port := os.Getenv("MASTER_PORT"); strings.Trim(port, "0123456789") != "" {
				return nil, fmt.Errorf("MASTER_PORT=%q: want a number", port)
			}
		}
		return p, err
	case os.Getenv("SLURM_STEP_ID") != "" && os.Getenv("SLURM_STEP_NUM_TASKS") != "": // of srun; the batch script has none
		nodes := cmp.Or(os.Getenv("SLURM_STEP_NODELIST"), os.Getenv("SLURM_NODELIST"))
		first := firstNode.FindStringSubmatch(strings.TrimSpace(nodes))
		if first == nil {
			return nil, fmt.Errorf("SLURM_STEP_NODELIST=%q: want the names of nodes", nodes)
		}
		job, _ := strconv.Atoi(os.Getenv("SLURM_JOB_ID"))
		step, _ := strconv.Atoi(os.Getenv("SLURM_STEP_ID"))
		port := 20000 + (131*job+step)%12000
		return place("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
			fmt.Sprintf("%s%s%s:%d", first[1], first[2], first[3], port), fmt.Sprintf("%d.%d", job, step))
	}
	return nil, nil
}

// place reads rank and size; nil where there is one process.
func place(by, rank, size, local, address, secret string) (*Place, error) {
	p := &Place{By: by, Address: address, Secret: secret}
	for _, of := range []struct {
		name string
		to   *int
	}{{rank, &p.Rank}, {size, &p.Size}, {local, &p.Local}} {
		n, err := strconv.Atoi(os.Getenv(of.name))
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%s=%q: want a number", of.name, os.Getenv(of.name))
		}
		*of.to = n
	}
	if p.Rank >= p.Size {
		return nil, fmt.Errorf("%s=%d: want less than %s=%d", rank, p.Rank, size, p.Size)
	}
	if p.Size == 1 {
		return nil, nil
	}
	return p, nil
}

// firstNode matches the first name of a list as Slurm writes it, in three parts: node[03-07,12],other.
var firstNode = regexp.MustCompile(`^([^\[,]+)(?:\[([0-9]+)[^\]]*\])?([^\[,]*)`)
