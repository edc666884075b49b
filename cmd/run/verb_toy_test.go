package main

import (
	"fmt"

	"fulcrum/internal/usage"
)

// toyVerb shows what a verb is: this file, and one line in a table (sessionOf).
func toyVerb(app fakeApp) newVerb {
	return func() *verb {
		f := usage.Flags()
		loud := f.Bool("loud", false, "say them loudly")
		return &verb{
			usage: "run toy [--loud] WORD…\nSays the words.\n",
			flags: f,
			words: []string{"hello", "world"},
			run: func(_ *session, args []string) error {
				how := ""
				if *loud {
					how = "loudly "
				}
				return app.note(fmt.Sprintf("toy %s%v", how, args))
			},
		}
	}
}
