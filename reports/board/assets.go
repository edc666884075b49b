package board

import (
	"bytes"
	"embed"
	"path"
	"regexp"
	"strings"
)

//go:embed assets
var assets embed.FS

// scripts are the page's modules, each behind those that it imports. The page loads them as one script: modules of files
// that were opened without a server are refused by browsers.
func scripts() []string {
	return []string{"dom.js", "store.js", "chart.js", "parallel.js", "list.js", "run.js", "sweep.js", "compare.js", "main.js"}
}

// asset returns a file of the page.
func asset(name string) []byte {
	switch name {
	case "board.js":
		return Script(scripts()...)
	case "board.css":
		return append(read("vendor/uplot/uPlot.min.css"), read("board.css")...)
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

var imports = regexp.MustCompile(`(?m)^import .*\n`)

// Script joins uPlot and modules to one script: their imports are left out, since all names are in one scope.
func Script(modules ...string) []byte {
	var out bytes.Buffer
	out.Write(read("vendor/uplot/uPlot.iife.min.js"))
	out.WriteString("\n(() => {\n\"use strict\";\n")
	for _, name := range modules {
		text := imports.ReplaceAllString(string(read(name)), "")
		out.WriteString("// " + name + "\n" + strings.ReplaceAll(text, "\nexport ", "\n"))
	}
	out.WriteString("})();\n")
	return out.Bytes()
}
