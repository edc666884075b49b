package launcher

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

// SlurmOptions is hydra.launcher of hydra/launcher=slurm and of its alias submitit_slurm: the keys of
// Hydra's submitit plugin with their meaning there. What is null is left to the cluster.
type SlurmOptions struct {
	// partition (queue); null = the cluster's default
	Partition *string `koanf:"partition"`
	// minutes an attempt may take
	TimeoutMin int `koanf:"timeout_min" range:"[1,inf)"`
	// cores of a job
	CPUsPerTask *int `koanf:"cpus_per_task" range:"[1,inf)"`
	// GPUs of a job
	GPUsPerNode *int `koanf:"gpus_per_node" range:"[0,inf)"`
	// memory of a job, GB
	MemGB *float64 `koanf:"mem_gb" range:"(0,inf)"`

	// jobs of an array that run at a time
	ArrayParallelism int `koanf:"array_parallelism" range:"[1,inf)"`
	// seconds between the warning, at which a job saves its state, and the time limit; Slurm may warn up to a
	// minute earlier
	SignalDelayS int `koanf:"signal_delay_s" range:"[1,inf)"`
	// times that a job which met its time limit is queued again, to go on where it was
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
	// GPUs of a job's one task
	GPUsPerTask *int `koanf:"gpus_per_task" range:"[0,inf)"`
	// memory for each GPU, such as 40G
	MemPerGPU *string `koanf:"mem_per_gpu"`
	// memory for each core, such as 4G
	MemPerCPU *string `koanf:"mem_per_cpu"`
	// any text, kept with the job
	Comment *string `koanf:"comment"`
	// lines of shell before the job, such as module load cuda; they run as they stand, every other key is
	// quoted
	Setup *[]string `koanf:"setup"`
	// start the job by srun with these arguments; null = without srun
	SrunArgs *[]string `koanf:"srun_args"`

	// further sbatch options: {mail_type: END, exclusive: true}
	AdditionalParameters map[string]any `koanf:"additional_parameters"`
	// minutes to wait for a cluster that does not answer, before the sweep ends with an error; its jobs go on,
	// and run resume watches them again
	AnswerTimeoutMin float64 `koanf:"answer_timeout_min" range:"(0,inf)"`
	// one file for what Slurm and the setup lines print, not two
	StderrToStdout bool `koanf:"stderr_to_stdout"`

	// Submitit's keys, with one meaning possible here.

	// 1: a job runs on one node
	Nodes int `koanf:"nodes" range:"[1,inf)" constant:"accepted"`
	// 1: a job is one process
	TasksPerNode int `koanf:"tasks_per_node" range:"[1,inf)" constant:"accepted"`
	// not used: Slurm's files are in .sweep/slurm of the sweep
	SubmititFolder *string `koanf:"submitit_folder" constant:"accepted"`
	// null: jobs run this program
	Python *string `koanf:"python" constant:"accepted"`
}

// DefaultSlurmOptions returns submitit's defaults.
func DefaultSlurmOptions() SlurmOptions {
	return SlurmOptions{TimeoutMin: 60, ArrayParallelism: 256, SignalDelayS: 120, Name: "run", AnswerTimeoutMin: 60, Nodes: 1, TasksPerNode: 1}
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
	"ntasks": "a job is one task", "n": "a job is one task", "ntasks-per-node": "a job is one task",
	"hold": "the sweep would wait for ever; hold jobs with scontrol hold", "H": "the sweep would wait for ever; hold jobs with scontrol hold",
}

// sbatchKeys are sbatch's options that have keys of their own here.
var sbatchKeys = map[string]string{
	"partition": "partition", "p": "partition", "time": "timeout_min", "t": "timeout_min", "cpus-per-task": "cpus_per_task",
	"c":             "cpus_per_task",
	"gpus-per-node": "gpus_per_node", "mem": "mem_gb", "job-name": "name", "J": "name", "account": "account", "A": "account",
	"qos": "qos", "q": "qos",
	"constraint": "constraint", "C": "constraint", "exclude": "exclude", "x": "exclude", "gres": "gres", "cpus-per-gpu": "cpus_per_gpu",
	"gpus-per-task": "gpus_per_task", "mem-per-gpu": "mem_per_gpu", "mem-per-cpu": "mem_per_cpu", "comment": "comment",
	"nodes": "nodes", "N": "nodes",
}

// Validate refuses by name what cannot mean anything here.
func (o *SlurmOptions) Validate() error {
	switch {
	case o.Nodes > 1:
		return option.Errorf("nodes", "want 1, got %d: a job of this program runs on one node; put several jobs in the sweep instead", o.Nodes)
	case o.TasksPerNode > 1:
		return option.Errorf("tasks_per_node", "want 1, got %d: a job of this program is one process; use cpus_per_task for more "+
			"cores", o.TasksPerNode)
	case o.Python != nil:
		return option.Errorf("python", "want null: jobs run this program, not %s", *o.Python)
	case o.SubmititFolder != nil && *o.SubmititFolder != "" && !strings.HasSuffix(*o.SubmititFolder, filepath.Join(".submitit", "%j")):
		return option.Errorf("submitit_folder", "want null: Slurm's files are in .sweep/slurm of hydra.sweep.dir, got %s", *o.SubmititFolder)
	case o.SignalDelayS >= 60*o.TimeoutMin:
		return option.Errorf("signal_delay_s", "want fewer seconds than the %d of timeout_min=%d, got %d: a job would be told to "+
			"save its state as soon as it starts", 60*o.TimeoutMin, o.TimeoutMin, o.SignalDelayS)
	}
	for _, t := range o.texts() {
		if t.value != nil && unprintable(*t.value) {
			return option.Errorf(t.key, "want one line without control characters, got %q", *t.value)
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
		if err := checkSbatch(key, o.AdditionalParameters[key]); err != nil {
			return err
		}
	}
	return nil
}

// texts lists the keys of one text, each of which is handed to sbatch.
func (o *SlurmOptions) texts() []slurmText {
	return []slurmText{
		{"name", &o.Name}, {"partition", o.Partition}, {"account", o.Account}, {"qos", o.QOS}, {"constraint",
			o.Constraint}, {"exclude", o.Exclude},
		{"gres", o.Gres}, {"mem_per_gpu", o.MemPerGPU}, {"mem_per_cpu", o.MemPerCPU}, {"comment", o.Comment},
	}
}

// slurmText is a key and its value, nil where it is null.
type slurmText struct {
	key   string
	value *string
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
func checkSbatch(key string, value any) error {
	name, at := sbatchName(key), "additional_parameters."+key
	short := sbatchShort.MatchString(name)
	if !short && !sbatchLong.MatchString(name) {
		return option.Errorf("additional_parameters", "want names of sbatch's options such as mail_type, got %q", key)
	}
	if own, ok := sbatchKeys[name]; ok {
		return option.Errorf(at, "use hydra.launcher.%s", own)
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
		for _, full := range slices.Sorted(maps.Keys(sbatchKeys)) {
			if strings.HasPrefix(full, name) {
				return option.Errorf(at, "sbatch would read --%s as --%s: use hydra.launcher.%s", name, full, sbatchKeys[full])
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
func (o *SlurmOptions) resources() []string {
	args := []string{"--job-name=" + o.Name, "--nodes=1", "--ntasks=1", "--time=" + strconv.Itoa(o.TimeoutMin)}
	text := func(name string, v *string) {
		if v != nil {
			args = append(args, "--"+name+"="+*v)
		}
	}
	number := func(name string, v *int) {
		if v != nil {
			args = append(args, fmt.Sprintf("--%s=%d", name, *v))
		}
	}
	text("partition", o.Partition)
	number("cpus-per-task", o.CPUsPerTask)
	number("gpus-per-node", o.GPUsPerNode)
	if o.MemGB != nil {
		if gb := *o.MemGB; gb == float64(int(gb)) {
			args = append(args, fmt.Sprintf("--mem=%dG", int(gb)))
		} else {
			args = append(args, fmt.Sprintf("--mem=%dM", max(1, int(gb*1024))))
		}
	}
	text("account", o.Account)
	text("qos", o.QOS)
	text("constraint", o.Constraint)
	text("exclude", o.Exclude)
	text("gres", o.Gres)
	number("cpus-per-gpu", o.CPUsPerGPU)
	number("gpus-per-task", o.GPUsPerTask)
	text("mem-per-gpu", o.MemPerGPU)
	text("mem-per-cpu", o.MemPerCPU)
	text("comment", o.Comment)
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
