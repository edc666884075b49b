package experiments

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strings"
	"syscall"

	"fulcrum/beamdata"
	"fulcrum/experiments/job"
	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/experiments/tasks"
	"fulcrum/internal/build"
	"fulcrum/internal/stdout"
	"fulcrum/internal/torchx"
	"fulcrum/internal/usage"
	"fulcrum/phases"
	"fulcrum/reports"
	"fulcrum/selector/pointer"
)

// htmlFlag writes a report that is printed as a page too.
const htmlFlag = "--html"

// verbReport rebuilds the report of a run or sweep, compares several runs, or judges a published table.
func verbReport(_ context.Context, _ App, args []string) error {
	paths, page, err := htmlTarget(args)
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return usage.Errorf("want: run report RUN_FOLDER…, or run report TABLE.json")
	}
	for _, path := range paths {
		if err := runfolder.CheckExists(path); err != nil {
			return err
		}
		if len(paths) > 1 && !runfolder.IsRun(path) {
			return usage.Errorf("%s: not a run folder: want the folders of runs to compare", path)
		}
	}
	if len(paths) > 1 || filepath.Ext(paths[0]) == ".json" {
		var text string
		if len(paths) > 1 {
			text, err = reports.Compare(paths)
		} else {
			text, err = reports.Published(paths[0])
		}
		if err != nil {
			return err
		}
		stdout.Print(text)
		if page == "" {
			return nil
		}
		if err := tasks.PrepareOut(htmlFlag, page, nil); err != nil {
			return err
		}
		return reports.WritePage(page, text)
	}
	dir := paths[0]
	if page != "" {
		return usage.Errorf("%s %s: the page of one run or sweep is its report.html; the flag is for comparisons", htmlFlag, page)
	}
	if ledger.Exists(dir) {
		if err := sweep.WriteReport(dir); err != nil {
			return err
		}
	} else {
		if !runfolder.IsRun(dir) {
			return usage.Errorf("%s: neither a run folder nor a sweep folder", dir)
		}
		rebuild := reports.RebuildReport
		if runfolder.TaskOf(dir) == "evaluate" {
			rebuild = tasks.RewriteEvaluation
		}
		if err := rebuild(dir); err != nil {
			return err
		}
	}
	stdout.Printf("report: %s\n", filepath.Join(dir, "report.md"))
	return nil
}

// htmlTarget takes --html FILE or --html=FILE out of the arguments of a report.
func htmlTarget(args []string) (paths []string, page string, err error) {
	for i := 0; i < len(args); i++ {
		name, value, given := strings.Cut(args[i], "=")
		if name != htmlFlag {
			paths = append(paths, args[i])
			continue
		}
		if !given && i+1 < len(args) {
			i++
			value = args[i]
		}
		if page = value; page == "" {
			return nil, "", usage.Errorf("%s: want a file: run report A B %s FILE", htmlFlag, htmlFlag)
		}
	}
	return paths, page, nil
}

// verbCheckpoint inspects, verifies or exports checkpoints: ours, the reference trainer's, Lightning's. Of a
// run folder it inspects and exports the best one and verifies all, and the state that a resume would take.
func verbCheckpoint(_ context.Context, _ App, args []string) error {
	if len(args) > 0 && args[0] == "export" {
		return exportCheckpoint(args[1:])
	}
	if len(args) != 2 || args[0] != "inspect" && args[0] != "verify" {
		return usage.Errorf("want: run checkpoint inspect|verify FILE_OR_RUN_FOLDER, or run checkpoint export FILE_OR_RUN_FOLDER --format FORMAT")
	}
	path, err := job.ResolveCheckpoint("", args[1])
	if err != nil {
		return err
	}
	if path == args[1] || args[0] == "inspect" {
		return checkCheckpoint(path, args[0] == "inspect")
	}
	all, err := filepath.Glob(filepath.Join(runfolder.GlobLiteral(args[1]), "checkpoints", "*_epoch*.safetensors"))
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

// checkCheckpoint reads a checkpoint file whole; values that are not finite are an error.
func checkCheckpoint(path string, inspect bool) error {
	c, err := pointer.ReadCheckpoint(path)
	if err != nil {
		return err
	}
	defer c.Close()
	names := make([]string, 0, len(c.Weights))
	total, bad := 0, []string{}
	for name, t := range c.Weights {
		names = append(names, name)
		values, err := t.Float32s()
		if err != nil {
			return fmt.Errorf("%s: %s: %w", path, name, err)
		}
		total += len(values)
		for i, v := range values {
			if v-v != 0 {
				bad = append(bad, fmt.Sprintf("%s[%d] = %v", name, i, v))
				break
			}
		}
	}
	if len(bad) > 0 {
		sort.Strings(bad)
		return fmt.Errorf("%s: not finite: %s", path, strings.Join(bad, ", "))
	}
	stdout.Printf("%s: %d tensors, %d parameters, all finite\n", path, len(names), total)
	if !inspect {
		return nil
	}
	sort.Strings(names)
	out := bufio.NewWriter(stdout.Writer()) // there may be half a million
	for _, key := range slices.Sorted(maps.Keys(c.Metadata)) {
		fmt.Fprintf(out, "  %s = %s\n", key, c.Metadata[key])
	}
	for _, name := range names {
		fmt.Fprintf(out, "  %-40s %s %v\n", name, c.Weights[name].DType, c.Weights[name].Shape)
	}
	return out.Flush()
}

// verbData reports what a file of data holds.
func verbData(_ context.Context, _ App, args []string) error {
	if len(args) != 2 || args[0] != "inspect" {
		return usage.Errorf("want: run data inspect PATH")
	}
	report, err := beamdata.Inspect(args[1], 0, beamdata.DefaultOptions())
	if err != nil {
		return err
	}
	report.Write(stdout.Writer())
	if report.Faulty() {
		return fmt.Errorf("%s: a run would refuse this", args[1])
	}
	return nil
}

// verbDoctor says what of libtorch, BLAS, CUDA and threads works here.
func verbDoctor(context.Context, App, []string) error {
	stdout.Printf("fulcrum   %s, %s, %s/%s, %d cores\n", build.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	var disk syscall.Statfs_t
	if err := syscall.Statfs(".", &disk); err == nil {
		stdout.Printf("disk      %.1f GiB free here\n", float64(disk.Bavail)*float64(disk.Bsize)/(1<<30))
	}
	if err := torchx.Load(); err != nil {
		return fmt.Errorf("libtorch does not load: %w", err)
	}
	torchx.Attach(runtime.NumCPU())
	stdout.Printf("libtorch  %s\n", torchx.Version())
	stdout.Printf("threads   %d\n", torchx.Threads())
	for _, line := range strings.Split(strings.TrimSpace(torchx.BuildConfig()), "\n") {
		stdout.Printf("          %s\n", strings.TrimSpace(line))
	}
	if torchx.CUDAAvailable() {
		stdout.Println("cuda      available (device=cuda)")
	} else {
		stdout.Println("cuda      not available: device=cpu; for a GPU build with LIBTORCH=python or LIBTORCH=/path (make help)")
	}
	return torchx.Try(func() error {
		defer torchx.Scope()()
		x := torchx.Full(1, 512, 512)
		if got := torchx.Sum(torchx.MatMul(x, x)).Item(); got != 512*512*512 {
			return fmt.Errorf("a matrix product gives %g, want %d: this libtorch is broken", got, 512*512*512)
		}
		stdout.Println("products  a 512×512 matrix product is right")
		return nil
	})
}

func libtorchVersion() string { return torchx.Version() }
