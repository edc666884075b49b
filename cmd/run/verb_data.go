package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/beamdata"
	"fulcrum/beamdata/mend"
	"fulcrum/configs"
	"fulcrum/experiments/job"
	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/experiments/workload"
	"fulcrum/internal/list"
	"fulcrum/internal/program"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
	"fulcrum/selector/vl/pixels"
)

// dataVerb reports what a file of data holds.
func dataVerb() *verb {
	f := usage.Flags()
	asJSON := jsonFlag(f)
	endings := []string{".json", ".jsonl", ".parquet", ".npz", ".npy", ".pt", ".pth", ".safetensors"}
	fix := f.String("fix", "", "write a corrected copy into the folder OUT")
	return &verb{
		usage: `run data inspect beams.json
run data inspect data/okvqa
run data inspect data --fix data_fixed
run data inspect rl.json data.reward.field=gain
run data inspect news.jsonl data.texts.source=body data.texts.target=headline

run data inspect PATH [--json] [--fix OUT] [data.KEY=VALUE ...]
Reports what a beam file, embedding table, reward table, or a file of conversations, texts or records_icl holds,
and the first fault for which a run would refuse it (exit code 1), with the keys of data=beams that follow.
--fix writes a corrected copy of PATH into the new folder OUT and reports on that: byte order marks, transposed tables, ids in quotes,
single values for lists and data inside of an object are mended; what has two readings is named and left. If files name pictures, give
the folder that holds both.
`,
		flags: f,
		words: []string{"inspect"},
		run: func(s *session, args []string) error {
			foreign := func(arg string) bool { return !strings.HasPrefix(arg, "data.") }
			if len(args) < 2 || args[0] != "inspect" || slices.ContainsFunc(args[2:], foreign) {
				return usage.Errorf("want: `run data inspect PATH [--json] [--fix OUT] [data.KEY=VALUE ...]`")
			}
			opt, err := s.dataOptions(args[2:])
			if err != nil {
				return err
			}
			opt.Picture = func(path string) error {
				_, err := pixels.Decode(path)
				return err
			}
			report, isModel := workload.InspectModel(args[1])
			var noData error // of a run's folder, whose records of completions are no faulty data
			if !isModel && (runfolder.IsRun(args[1]) || ledger.Exists(args[1])) {
				noData = usage.Errorf("%s is the folder of a run or sweep and no data: %s tells what came of it", args[1],
					program.OnFolder("report", args[1]))
			}
			if f.Changed("fix") {
				if *fix == "" || isModel || noData != nil {
					return usage.Errorf("--fix %q: want a new folder, and data to copy, not the folder of a run, a sweep or a model: %q", *fix, args[1])
				}
				copied, said, err := mend.Write(args[1], *fix)
				if err != nil {
					return err
				}
				to := s.out
				if args[1] = copied; *asJSON {
					to = s.errOut
				}
				fmt.Fprintln(to, stdout.Folded(cmp.Or(strings.Join(said, "\n"), "nothing to mend: "+copied+" is a copy")))
			}
			if noData != nil && !*asJSON {
				return noData
			}
			if !isModel {
				if report, err = beamdata.Inspect(args[1], 0, opt); err != nil {
					return usage.Errorf("%v", err)
				}
				if report.Format == "" && !slices.Contains(endings, strings.ToLower(filepath.Ext(args[1]))) {
					return usage.Errorf("%s: files of data end in %s", args[1], strings.Join(endings, ", "))
				}
			}
			if !*asJSON {
				var text strings.Builder
				report.Write(&text)
				fmt.Fprint(s.out, stdout.Folded(text.String()))
				if train := trainOn(report); !isModel && !report.Faulty() && len(train) > 0 {
					fmt.Fprintf(s.out, "train on it: %s\n", program.Command(train...))
				}
			} else if err := writeJSON(s.out, inspectionOf(report)); err != nil {
				return err
			}
			if noData != nil {
				return noData
			}
			if isModel && !report.Faulty() {
				return fmt.Errorf("%s is a %s and no data: the last line above says what reads it", report.Path, report.Format)
			}
			if !report.Faulty() {
				return nil
			}
			how := ""
			_, mends, err := mend.Write(args[1], "")
			mends = list.Filter(mends, func(line string) bool { return strings.HasPrefix(line, "mended ") })
			if err == nil && len(mends) > 0 {
				how = fmt.Sprintf("; %s writes a copy: %s", program.Command("data", "inspect", args[1], "--fix", "OUT"), strings.Join(mends, "; "))
			}
			return fmt.Errorf("%s: a run would refuse this%s", args[1], how)
		},
	}
}

// trainOn is the command that trains on what was inspected, in words; nil where there is none.
func trainOn(in beamdata.Inspection) []string {
	files := slices.Concat(in.Files, []beamdata.Inspection{in})
	first := func(format string) (in beamdata.Inspection) { // of those that there is something to learn from
		if i := slices.IndexFunc(files, func(f beamdata.Inspection) bool {
			return strings.HasPrefix(f.Format, format) && !strings.HasPrefix(f.Fact("with a target"), "0 ")
		}); i >= 0 {
			in = files[i]
		}
		return in
	}
	embeddings, beams, texts, talks := first("embeddings").Path, first("beams").Path, first("texts").Path, first("conversations")
	whole := slices.ContainsFunc(in.Files, func(f beamdata.Inspection) bool { return filepath.Base(f.Path) == "reader_train.npz" })
	switch {
	case whole && embeddings != "":
		return []string{"exp=okvqa_v3", "data=okvqa", "data.root=" + in.Path}
	case beams != "":
		return []string{"exp=beams_v3", "data=beams", "data.beams=" + beams, "data.embeddings=" + cmp.Or(embeddings, "FILE")}
	case talks.Path != "" && talks.Fact("images") != "0":
		return []string{"exp=qwen2_5_vl_sft", "vl.path=MODEL", "data.conversations.train=" + talks.Path}
	case talks.Path != "":
		return []string{"exp=qwen2_5_text", "vl.path=MODEL", "data.conversations.train=" + talks.Path}
	case texts != "":
		return []string{"exp=t5_summarize", "seq2seq.path=MODEL", "data.texts.train=" + texts}
	}
	return nil
}

// dataOptions are those of data=beams with overrides; without any, the defaults.
func (s *session) dataOptions(overrides []string) (beamdata.Options, error) {
	if len(overrides) == 0 {
		return beamdata.DefaultOptions(), nil
	}
	named := []string{"data=beams", "data.beams=PATH", "data.embeddings=PATH"} // which it wants; nothing opens them here
	c, err := s.composed(append(named, overrides...))
	if err != nil {
		return beamdata.Options{}, err
	}
	config, err := job.Decode(c)
	if err != nil {
		return beamdata.Options{}, err
	}
	return config.Data, nil
}

// composed is the configuration of a run with overrides.
func (s *session) composed(overrides []string) (*configs.Composed, error) {
	req, err := s.request(&invocation{args: overrides})
	if err != nil {
		return nil, err
	}
	return configs.Compose(req)
}

// inspectionJSON is what run data inspect --json prints of a file or folder.
type inspectionJSON struct {
	Path   string           `json:"path"`
	Format string           `json:"format"` // "" where it cannot be read
	Facts  []beamdata.Fact  `json:"facts"`  // in the order of the text
	Fault  string           `json:"fault"`  // why a run would refuse it; "": it would not
	Files  []inspectionJSON `json:"files"`  // of a folder
}

func inspectionOf(in beamdata.Inspection) inspectionJSON {
	out := inspectionJSON{Path: in.Path, Format: in.Format, Files: list.Map(in.Files, inspectionOf)}
	out.Facts = append([]beamdata.Fact{}, in.Facts...) // [], not null
	if in.Fault != nil {
		out.Fault = in.Fault.Error()
	}
	return out
}
