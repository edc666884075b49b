package main

// command is a line of the list of commands.
type command struct{ name, does string }

// commandGroup is a paragraph of the list of commands.
type commandGroup struct {
	title    string
	commands []command
}

// commandGroups are the commands in the order in which a user meets them.
func commandGroups() []commandGroup {
	return []commandGroup{
		{"Runs and sweeps", []command{
			{"ask", "whether a change is worth having, by a study that grows"},
			{"board", "runs and sweeps in a browser, live"},
			{"ls", "list runs with state and results"},
			{"status", "how far a run or the jobs of a sweep are"},
			{"watch", "curves of a run, or the jobs of a sweep, until it ends"},
			{"resume", "go on with an interrupted run or sweep"},
			{"attach", "follow a sweep until it ends"},
		}},
		{"Results", []command{
			{"report", "write a report again, or compare runs"},
			{"diff", "settings, data and code that differ between two"},
			{"export", "tables as CSV, JSON, LaTeX, Markdown or Parquet"},
			{"verify", "compute every number of a report again"},
			{"prove", "compute steps of a finished run again, and compare bytes"},
			{"open-test", "score sealed questions, once, for a claim"},
			{"checkpoint", "inspect, verify or export weights"},
		}},
		{"Before a run", []command{
			{"data", "what a data file holds, and whether it can be used"},
			{explainName, "which file or override set a key, and its meaning"},
			{"doctor", "what works on this machine"},
			{"lever-plus", "the Python reference's command line"},
		}},
	}
}
