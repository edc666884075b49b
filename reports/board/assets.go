package board

import (
	"embed"
	"path"

	"fulcrum/internal/list"
	"fulcrum/reports/webchart"
)

//go:embed assets
var assets embed.FS

// scripts are the page's modules, each behind those that it imports, besides those of the charts.
func scripts() []string {
	return []string{"store.js", "parallel.js", "columns.js", "sparks.js", "list.js", "run.js", "sweep.js", "compare.js", "main.js"}
}

// asset returns a file of the page.
func asset(name string) []byte {
	switch name {
	case "board.js":
		return webchart.Script(list.Map(scripts(), read)...)
	case "board.css":
		return append(webchart.Style(), read("board.css")...)
	}
	return read(name)
}

func read(name string) []byte {
	data, err := assets.ReadFile(path.Join("assets", name))
	if err != nil {
		return nil // a test opens every name
	}
	return data
}
