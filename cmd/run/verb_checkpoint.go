package main

import (
	"bufio"
	"fmt"
	"maps"
	"slices"
	"strings"

	"fulcrum/experiments/job"
	"fulcrum/internal/regular"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
	"fulcrum/phases"
	"fulcrum/selector/pointer"
)

// checkpointVerb inspects, verifies or exports checkpoints: ours, the reference trainer's, Lightning's. Of a
// run folder it inspects and exports the best one and verifies all, and the state that a resume would take.
func checkpointVerb() *verb {
	f := usage.Flags()
	var opt exportOptions
	f.StringVar(&opt.format, "format", "", "layout to write")
	f.StringVar(&opt.out, "out", "", "file to write; default: beside the checkpoint")
	f.BoolVar(&opt.force, "force", false, "replace an existing file")
	f.StringVar(&opt.base, "base", "", "model folder that adapters belong to; default: the run's own (hf, peft)")
	asJSON := jsonFlag(f)
	f.StringVar(&opt.dtype, "dtype", "", "float32, bfloat16 or float16; default: the base's (hf)")
	return &verb{
		usage: `run checkpoint inspect outputs/quick
run checkpoint export outputs/quick --format pt --out best.pt

run checkpoint inspect FILE_OR_RUN_FOLDER [--json]
run checkpoint verify FILE_OR_RUN_FOLDER
run checkpoint export FILE_OR_RUN_FOLDER --format ` + strings.Join(exportFormats(), "|") + ` [--out PATH] [--force]
    [--base MODEL_FOLDER] [--dtype float32|bfloat16|float16]
Lists what a checkpoint holds, checks that it is whole and finite, or writes it in another layout.
`,
		flags: f,
		words: []string{"export", "inspect", "verify"},
		run: func(s *session, args []string) error {
			if len(args) > 0 && args[0] == "export" && !*asJSON {
				return exportCheckpoint(args[1:], opt)
			}
			if *asJSON && f.NFlag() == 1 && len(args) == 2 && args[0] == "inspect" {
				path, err := job.ResolveCheckpoint("", args[1])
				if err != nil {
					return err
				}
				c, err := readCheckpoint(path)
				if err != nil {
					return err
				}
				return writeJSON(s.out, c)
			}
			if f.NFlag() > 0 {
				return usage.Errorf("checkpoint: only export has flags, and inspect has --json")
			}
			return checkCheckpoints(args)
		},
	}
}

// checkCheckpoints inspects or verifies.
func checkCheckpoints(args []string) error {
	if len(args) != 2 || args[0] != "inspect" && args[0] != "verify" {
		return usage.Errorf("want: `run checkpoint inspect|verify FILE_OR_RUN_FOLDER`, or " +
			"`run checkpoint export FILE_OR_RUN_FOLDER --format FORMAT`")
	}
	path, err := job.ResolveCheckpoint("", args[1])
	if err != nil {
		return err
	}
	if path == args[1] || args[0] == "inspect" {
		return checkCheckpoint(path, args[0] == "inspect")
	}
	all, err := regular.Glob(args[1], "checkpoints/*_epoch*.safetensors")
	if err != nil {
		return err
	}
	for _, path := range all {
		if err := checkCheckpoint(path, false); err != nil {
			return err
		}
	}
	saved, err := phases.FindState(args[1])
	if err == nil && saved != nil {
		stdout.Printf("%s: a resume can start here\n", saved.Dir)
	}
	return err
}

// checkCheckpoint prints what a checkpoint file comes to, and for inspect what it holds.
func checkCheckpoint(path string, inspect bool) error {
	c, err := readCheckpoint(path)
	if err != nil {
		return err
	}
	stdout.Printf("%s: %d tensors, %d parameters, all finite\n", path, len(c.Tensors), c.Parameters)
	if !inspect {
		return nil
	}
	out := bufio.NewWriter(stdout.Writer()) // there may be half a million
	for _, key := range slices.Sorted(maps.Keys(c.Metadata)) {
		text := strings.ReplaceAll(c.Metadata[key], `,"`, `, "`) // JSON has no blank where a terminal could break it
		fmt.Fprintln(out, stdout.Folded("  "+key+" = "+text))
	}
	for _, t := range c.Tensors {
		fmt.Fprintf(out, "  %-40s %s %v\n", t.Name, t.DType, t.Shape)
	}
	return out.Flush()
}

// checkpointJSON is what run checkpoint inspect --json prints.
type checkpointJSON struct {
	Path       string            `json:"path"`
	Parameters int               `json:"parameters"`
	Metadata   map[string]string `json:"metadata"`
	Tensors    []tensorJSON      `json:"tensors"`
}

// tensorJSON names a tensor of a checkpoint.
type tensorJSON struct {
	Name  string `json:"name"`
	DType string `json:"dtype"`
	Shape []int  `json:"shape"`
}

// readCheckpoint reads a checkpoint file whole; values that are not finite are an error.
func readCheckpoint(path string) (*checkpointJSON, error) {
	c, err := pointer.ReadCheckpoint(path)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	out := &checkpointJSON{Path: path, Metadata: map[string]string{}, Tensors: []tensorJSON{}}
	maps.Copy(out.Metadata, c.Metadata)
	var bad []string
	for _, name := range slices.Sorted(maps.Keys(c.Weights)) {
		t := c.Weights[name]
		var values []float32
		if t.DType.IsFloat() { // position_ids are no parameters
			if values, err = t.Float32s(); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", path, name, err)
			}
		}
		out.Tensors = append(out.Tensors, tensorJSON{name, fmt.Sprint(t.DType), append([]int{}, t.Shape...)})
		out.Parameters += len(values)
		if i := slices.IndexFunc(values, func(v float32) bool { return v-v != 0 }); i >= 0 {
			bad = append(bad, fmt.Sprintf("%s[%d] = %v", name, i, values[i]))
		}
	}
	if len(bad) > 0 {
		return nil, fmt.Errorf("%s: not finite: %s", path, strings.Join(bad, ", "))
	}
	return out, nil
}
