package webchart

import (
	"bytes"
	"embed"
	"encoding/json"
	"path"
	"regexp"
	"strings"

	"fulcrum/reports/page"
)

//go:embed assets
var assets embed.FS

// Style is the style sheet of the charts.
func Style() []byte { return append(Asset("vendor/uplot/uPlot.min.css"), Asset("chart.css")...) }

// Asset returns a file of the charts, nil for another name.
func Asset(name string) []byte {
	data, err := assets.ReadFile(path.Join("assets", name))
	if err != nil {
		return nil // a test opens every name
	}
	return data
}

// Modules are the charts' own, each behind those that it imports.
func Modules() [][]byte { return [][]byte{Asset("dom.js"), Asset("chart.js"), Asset("panels.js")} }

var imports = regexp.MustCompile(`(?m)^import .*\n`)

// Script joins uPlot, the charts' modules and others to one script. Their imports are left out: all names are in one scope.
// Browsers load a module of a file that was opened without a server from nowhere else.
func Script(others ...[]byte) []byte {
	var out bytes.Buffer
	out.Write(Asset("vendor/uplot/uPlot.iife.min.js"))
	out.WriteString("\n(() => {\n\"use strict\";\n")
	for _, module := range append(Modules(), others...) {
		text := imports.ReplaceAllString(string(module), "")
		out.WriteString(strings.ReplaceAll("\n"+text, "\nexport ", "\n"))
	}
	out.WriteString("})();\n")
	return out.Bytes()
}

// Lively is the part of a report's page that draws data, the plots of these names among it.
func Lively(data any, plots ...string) (page.Lively, error) {
	text, err := json.Marshal(data)
	if err != nil {
		return page.Lively{}, err
	}
	style, script := append(Style(), Asset("report.css")...), Script(Asset("report.js"))
	return page.Lively{Style: style, Script: script, Data: text, Draws: plots}, nil
}
