package main

import (
	"fmt"
	"strings"

	"fulcrum/beamdata"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
)

// dataVerb reports what a file of data holds.
func dataVerb() *verb {
	f := noFlags()
	asJSON := jsonFlag(f)
	return &verb{
		usage: `run data inspect beams.json
run data inspect data/okvqa

run data inspect PATH [--json]
Reports what a beam file, embedding table, reward table, or a file of conversations, texts or records_icl holds,
and the first fault for which a run would refuse it (exit code 1).
`,
		flags: f,
		words: []string{"inspect"},
		run: func(s *session, args []string) error {
			if len(args) != 2 || args[0] != "inspect" {
				return usage.Errorf("want: `run data inspect PATH [--json]`")
			}
			report, err := beamdata.Inspect(args[1], 0, beamdata.DefaultOptions())
			if err != nil {
				return err
			}
			if !*asJSON {
				var text strings.Builder
				report.Write(&text)
				fmt.Fprint(s.out, stdout.Folded(text.String()))
			} else if err := writeJSON(s.out, inspectionOf(report)); err != nil {
				return err
			}
			if report.Faulty() {
				return fmt.Errorf("%s: a run would refuse this", args[1])
			}
			return nil

		},
	}
}

// inspectionJSON is what run data inspect --json prints of a file or folder.
type inspectionJSON struct {
	Path   string           `json:"path"`
	Format string           `json:"format"` // "" where it cannot be read
	Facts  []factJSON       `json:"facts"`  // in the order of the text
	Fault  string           `json:"fault"`  // why a run would refuse it; "": it would not
	Files  []inspectionJSON `json:"files"`  // of a folder
}

// factJSON is one line of an inspection.
type factJSON struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func inspectionOf(in beamdata.Inspection) inspectionJSON {
	out := inspectionJSON{Path: in.Path, Format: in.Format, Facts: []factJSON{}, Files: []inspectionJSON{}}
	for _, f := range in.Facts {
		out.Facts = append(out.Facts, factJSON(f))
	}
	if in.Fault != nil {
		out.Fault = in.Fault.Error()
	}
	for _, file := range in.Files {
		out.Files = append(out.Files, inspectionOf(file))
	}
	return out
}
