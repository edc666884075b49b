package slurm

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"fulcrum/internal/option"
)

// Options is hydra.launcher of hydra/launcher=slurm and of its alias submitit_slurm: the keys of
// Hydra's submitit plugin with their meaning there. What is null is left to the cluster.
type Options struct {
	// partition (queue); null = the cluster's default
	Partition *string `koanf:"partition"`
	// minutes an attempt may take
	TimeoutMin int `koanf:"timeout_min" range:"[1,inf)"`
	// machines of a job
	Nodes int `koanf:"nodes" range:"[1,inf)"`
	// processes of a job on each node, which share its run (parallel.shards)
	TasksPerNode int `koanf:"tasks_per_node" range:"[1,inf)"`
	// cores of a task
	CPUsPerTask *int `koanf:"cpus_per_task" range:"[1,inf)"`
	// GPUs of a node
	GPUsPerNode *int `koanf:"gpus_per_node" range:"[0,inf)"`
	// memory of a node, GB
	MemGB *float64 `koanf:"mem_gb" range:"(0,inf)"`

	// jobs of an array that run at a time
	ArrayParallelism int `koanf:"array_parallelism" range:"[1,inf)"`
	// seconds from the warning, at which a job saves its state, to the time limit
	SignalDelayS int `koanf:"signal_delay_s" range:"[1,inf)"`
	// times that a job is queued again at its time limit, to go on
	MaxNumTimeout int `koanf:"max_num_timeout" range:"[0,inf)"`
	// name in squeue
	Name string `koanf:"name"`

	// account that is charged
	Account *string `koanf:"account"`
	// quality of service
	QOS *string `koanf:"qos"`
	// features that a node must have
	Constraint *string `koanf:"constraint"`
	// nodes not to use
	Exclude *string `koanf:"exclude"`
	// generic resources, such as gpu:a100:1
	Gres *string `koanf:"gres"`
	// cores for each GPU
	CPUsPerGPU *int `koanf:"cpus_per_gpu" range:"[1,inf)"`
	// GPUs of a task
	GPUsPerTask *int `koanf:"gpus_per_task" range:"[0,inf)"`
	// memory for each GPU, such as 40G
	MemPerGPU *string `koanf:"mem_per_gpu"`
	// memory for each core, such as 4G
	MemPerCPU *string `koanf:"mem_per_cpu"`
	// any text, kept with the job
	Comment *string `koanf:"comment"`
	// lines of shell before the job, such as module load cuda; they run as they stand, every other key is quoted
	Setup *[]string `koanf:"setup"`
	// start the job by srun with these arguments; null = without srun, unless it has several tasks
	SrunArgs *[]string `koanf:"srun_args"`

	// further sbatch options: {mail_type: END, exclusive: true}
	AdditionalParameters map[string]any `koanf:"additional_parameters"`

	// Submitit's keys.

	// one file for what Slurm and the setup lines print, not two
	StderrToStdout bool `koanf:"stderr_to_stdout" constant:"accepted"`
	// not used: Slurm's files are in .sweep/slurm of the sweep
	SubmititFolder *string `koanf:"submitit_folder" constant:"accepted"`
	// null: jobs run this program
	Python *string `koanf:"python" constant:"accepted"`
}

// DefaultOptions returns submitit's defaults.
func DefaultOptions() Options {
	return Options{TimeoutMin: 60, ArrayParallelism: 256, SignalDelayS: 120, Name: "run", Nodes: 1, TasksPerNode: 1}
}

// sbatchReserved are sbatch's options that this launcher sets itself, or that would break what it
// promises; the text says what to do instead.
var sbatchReserved = map[string]string{
	"array": "the launcher sets it: see array_parallelism", "a": "the launcher sets it: see array_parallelism",
	"output": "Slurm's files are in .sweep/slurm of the sweep", "o": "Slurm's files are in .sweep/slurm of the sweep",
	"error": "Slurm's files are in .sweep/slurm of the sweep", "e": "Slurm's files are in .sweep/slurm of the sweep",
	"open-mode": "the launcher sets it", "parsable": "the launcher sets it", "signal": "use signal_delay_s",
	"requeue": "the launcher sets it", "no-requeue": "a job that Slurm stops must be able to go on",
	"export": "jobs get the environment of the sweep; use hydra.job.env_set",
	"chdir":  "jobs start where the sweep was started", "D": "jobs start where the sweep was started",
	"wrap": "the launcher writes the script", "wait": "the launcher waits", "W": "the launcher waits", "test-only": "nothing would run",
	"clusters": "jobs go to the cluster of this machine", "M": "jobs go to the cluster of this machine",
	"ntasks": "use nodes and tasks_per_node", "n": "use nodes and tasks_per_node",
	"hold": "the sweep would wait for ever; hold jobs with scontrol hold", "H": "the sweep would wait for ever; hold jobs with scontrol hold",
}

// sbatchOption is an option of sbatch that has a key of its own here.
type sbatchOption struct {
	key         string // "": it has none, and is the same for all jobs
	long, short string
	value       *string // nil: left to the cluster
}

// sbatch lists them in the order in which they are given.
func (o *Options) sbatch() []sbatchOption {
	minutes := strconv.Itoa(o.TimeoutMin)
	number := func(n *int) *string {
		if n == nil {
			return nil
		}
		return new(strconv.Itoa(*n))
	}
	var memory *string
	if o.MemGB != nil {
		if gb := *o.MemGB; gb == float64(int(gb)) {
			memory = new(fmt.Sprintf("%dG", int(gb)))
		} else {
			memory = new(fmt.Sprintf("%dM", max(1, int(gb*1024))))
		}
	}
	return []sbatchOption{
		{"name", "job-name", "J", &o.Name}, {"nodes", "nodes", "N", number(&o.Nodes)},
		{"tasks_per_node", "ntasks-per-node", "", number(&o.TasksPerNode)}, {"timeout_min", "time", "t", &minutes},
		{"partition", "partition", "p", o.Partition}, {"cpus_per_task", "cpus-per-task", "c", number(o.CPUsPerTask)},
		{"gpus_per_node", "gpus-per-node", "", number(o.GPUsPerNode)}, {"mem_gb", "mem", "", memory}, {"account", "account", "A", o.Account},
		{"qos", "qos", "q", o.QOS}, {"constraint", "constraint", "C", o.Constraint}, {"exclude", "exclude", "x", o.Exclude},
		{"gres", "gres", "", o.Gres}, {"cpus_per_gpu", "cpus-per-gpu", "", number(o.CPUsPerGPU)},
		{"gpus_per_task", "gpus-per-task", "", number(o.GPUsPerTask)}, {"mem_per_gpu", "mem-per-gpu", "", o.MemPerGPU},
		{"mem_per_cpu", "mem-per-cpu", "", o.MemPerCPU}, {"comment", "comment", "", o.Comment},
	}
}

// Validate refuses by name what cannot mean anything here.
func (o *Options) Validate() error {
	switch {
	case o.Python != nil:
		return option.Errorf("python", "want null: jobs run this program, not %s", *o.Python)
	case o.SubmititFolder != nil && *o.SubmititFolder != "" && !strings.HasSuffix(*o.SubmititFolder, filepath.Join(".submitit", "%j")):
		return option.Errorf("submitit_folder", "want null: Slurm's files are in .sweep/slurm of hydra.sweep.dir, got %s", *o.SubmititFolder)
	case o.SignalDelayS >= 60*o.TimeoutMin:
		return option.Errorf("signal_delay_s", "want fewer seconds than the %d of timeout_min=%d, got %d: a job would be told to "+
			"save its state as soon as it starts", 60*o.TimeoutMin, o.TimeoutMin, o.SignalDelayS)
	}
	for _, own := range o.sbatch() {
		if own.value != nil && unprintable(*own.value) {
			return option.Errorf(own.key, "want one line without control characters, got %q", *own.value)
		}
	}
	if o.SrunArgs != nil {
		for i, arg := range *o.SrunArgs {
			if unprintable(arg) {
				return option.Errorf("srun_args", "item %d: want one line without control characters, got %q", i+1, arg)
			}
		}
	}
	if o.Setup != nil {
		for i, line := range *o.Setup {
			if strings.ContainsRune(line, 0) {
				return option.Errorf("setup", "line %d holds a NUL character, which no shell reads", i+1)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(o.AdditionalParameters)) {
		if err := o.checkSbatch(key, o.AdditionalParameters[key]); err != nil {
			return err
		}
	}
	return nil
}

// sbatchLong is how sbatch spells its long options; sbatchShort its options of one letter.
var (
	sbatchLong  = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)+$|^[a-z0-9]{2,}$`)
	sbatchShort = regexp.MustCompile(`^[A-Za-z]$`)
)

// sbatchSwitches are the options of one letter that take no value: sbatch would read a value as further options.
const sbatchSwitches = "hHIkOQRsvuVX"

// checkSbatch refuses an additional parameter that sbatch would read as another one, that has a key of its own, or
// that would break what the launcher promises.
func (o *Options) checkSbatch(key string, value any) error {
	name, at := sbatchName(key), "additional_parameters."+key
	short := sbatchShort.MatchString(name)
	if !short && !sbatchLong.MatchString(name) {
		return option.Errorf("additional_parameters", "want names of sbatch's options such as mail_type, got %q", key)
	}
	for _, own := range o.sbatch() {
		if own.key != "" && (name == own.long || name == own.short) {
			return option.Errorf(at, "use hydra.launcher.%s", own.key)
		}
	}
	if why, ok := sbatchReserved[name]; ok {
		return option.Errorf(at, "cannot be set: %s", why)
	}
	if !short && name != "gpus" { // --gpus stands beside --gpus-per-node; sbatch takes --arr for --array
		for _, full := range slices.Sorted(maps.Keys(sbatchReserved)) {
			if strings.HasPrefix(full, name) {
				return option.Errorf(at, "sbatch would read --%s as --%s, which cannot be set: %s", name, full, sbatchReserved[full])
			}
		}
		for _, own := range o.sbatch() {
			if strings.HasPrefix(own.long, name) {
				return option.Errorf(at, "sbatch would read --%s as --%s: use hydra.launcher.%s", name, own.long, own.key)
			}
		}
	}
	switch v := value.(type) {
	case nil, bool:
		return nil
	case string:
		if unprintable(v) {
			return option.Errorf(at, "want one line without control characters, got %q", v)
		}
		if short && v == "" {
			return option.Errorf(at, "want a value: sbatch would take its next argument for it")
		}
	case int, int64, float64:
	default:
		return option.Errorf(at, "want a text, a number, true or null, got %v", v)
	}
	if short && strings.Contains(sbatchSwitches, name) {
		return option.Errorf(at, "want true or false: -%s takes no value, got %v", name, value)
	}
	return nil
}

// slurmPath refuses a folder whose name Slurm's commands cannot show on one line: the launcher finds its jobs in
// Slurm's queue by the path of their script.
func slurmPath(dir string) error {
	if unprintable(dir) {
		return fmt.Errorf("folder %q: want a path without line breaks and control characters for jobs on a Slurm cluster "+
			"(hydra.sweep.dir and the folder of the start)", dir)
	}
	return nil
}

// sbatchName returns the option of sbatch that a key means.
func sbatchName(key string) string {
	return strings.ReplaceAll(strings.TrimLeft(key, "-"), "_", "-")
}

// resources returns the arguments of sbatch that say what a job needs.
func (o *Options) resources() []string {
	var args []string
	for _, own := range o.sbatch() {
		if own.value != nil {
			args = append(args, "--"+own.long+"="+*own.value)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(o.AdditionalParameters)) {
		name := sbatchName(key)
		flag, join := "--"+name, "="
		if len(name) == 1 {
			flag, join = "-"+name, ""
		}
		switch v := o.AdditionalParameters[key].(type) {
		case nil:
		case bool:
			if v {
				args = append(args, flag)
			}
		default:
			args = append(args, flag+join+fmt.Sprint(v))
		}
	}
	return args
}

// Processes is how many a job has.
func (o *Options) Processes() int { return o.Nodes * o.TasksPerNode }

// srun returns what starts the processes of a job: nothing where it is one.
func (o *Options) srun() []string {
	if o.Processes() == 1 && o.SrunArgs == nil {
		return nil
	}
	args := []string{"srun", fmt.Sprintf("--nodes=%d", o.Nodes), fmt.Sprintf("--ntasks-per-node=%d", o.TasksPerNode), "--kill-on-bad-exit=1"}
	if o.CPUsPerTask != nil { // which srun does not take from sbatch since 22.05
		args = append(args, fmt.Sprintf("--cpus-per-task=%d", *o.CPUsPerTask))
	}
	return append(args, option.Or(o.SrunArgs, nil)...)
}

// keysOf maps what sbatch complains about to the keys that ask for it.
var keysOf = []struct{ complaint, keys string }{
	{"partition", "partition"}, {"qos", "qos"}, {"account", "account"}, {"feature", "constraint"},
	{"generic resource", "gres, gpus_per_node, gpus_per_task"}, {"gpu", "gres, gpus_per_node, gpus_per_task"}, {"gres",
		"gres, gpus_per_node, gpus_per_task"},
	{"memory", "mem_gb, mem_per_cpu, mem_per_gpu"}, {"time limit", "timeout_min"}, {"node name", "exclude, additional_parameters.nodelist"},
	{"cpu count", "cpus_per_task"}, {"node configuration", "cpus_per_task, mem_gb, gpus_per_node, constraint"}, {"option",
		"additional_parameters"},
}

// blame names the key of hydra.launcher that sbatch's message is about.
func blame(message string) string {
	low := strings.ToLower(message)
	for _, k := range keysOf {
		if strings.Contains(low, k.complaint) {
			return " (hydra.launcher." + strings.ReplaceAll(k.keys, ", ", ", hydra.launcher.") + ")"
		}
	}
	return ""
}
