package main

import (
	"strings"

	"fulcrum/internal/list"
)

// command is a line of the list of commands.
type command struct{ name, does string }

// commandGroup is a title with its commands.
type commandGroup struct {
	title    string
	commands []command
}

// commandGroups are the commands in the order in which a user meets them: usage/commands.txt.
func commandGroups() []commandGroup {
	return list.Map(strings.Split(usageOf("commands"), "\n\n"), func(text string) commandGroup {
		lines := strings.Split(strings.TrimSpace(text), "\n")
		return commandGroup{lines[0], list.Map(lines[1:], func(line string) command {
			name, does, _ := strings.Cut(line, ": ")
			return command{name, does}
		})}
	})
}
