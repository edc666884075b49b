package runfolder

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"gopkg.in/yaml.v3"

	"fulcrum/configs"
	"fulcrum/internal/option"
	"fulcrum/internal/secret"
	"fulcrum/internal/stdout"
)

// OnEnd is the section on_end: who is told when a run or a sweep has ended, however it ended. A sweep's jobs tell nobody.
type OnEnd struct {
	// shell command; reads the summary as JSON (sweep: run status --json), with FULCRUM_FOLDER and FULCRUM_STATE in
	// its environment
	Command *string `koanf:"command" yaml:"command"`
	// http or https address that the same JSON is posted to; one with a secret in it comes from the environment,
	// ${oc.env:NAME}
	Webhook *string `koanf:"webhook" yaml:"webhook"`
}

func (o OnEnd) Validate() error {
	if o.Webhook == nil {
		return nil
	}
	u, err := url.Parse(*o.Webhook)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return option.Errorf("webhook", "want an address, as in https://HOST/PATH")
	}
	return nil
}

// OnEndOf reads the section of a composed configuration.
func OnEndOf(c *configs.Composed) (OnEnd, error) {
	var o OnEnd
	text, err := c.YAML("job", true, "on_end")
	if err != nil {
		return o, err
	}
	return o, yaml.Unmarshal([]byte(text), &o)
}

// How long whoever is told may take.
const (
	commandTime = time.Minute
	webhookTime = 10 * time.Second
	slowCommand = 2 * time.Second // then somebody who waits is told for what
)

// Tell runs the command and posts to the webhook. Document is what they get as JSON. What goes wrong is a warning: the
// run or sweep has ended as it has. A job of a sweep tells nobody.
func (o OnEnd) Tell(dir, state string, document any, warn func(string)) {
	if o.Command == nil && o.Webhook == nil || os.Getenv(ExpectedHash) != "" {
		return
	}
	data, err := json.Marshal(document)
	if err != nil {
		warn(fmt.Sprintf("on_end: %v", err))
		return
	}
	if o.Command != nil {
		if err := runCommand("on_end.command", *o.Command, dir, state, data, commandTime); err != nil {
			warn(fmt.Sprintf("on_end.command: %v", err))
		}
	}
	if o.Webhook != nil {
		if err := post(*o.Webhook, data, webhookTime); err != nil {
			warn(fmt.Sprintf("on_end.webhook: %v", err))
		}
	}
}

// Callbacks runs shell commands of hydra.callbacks, one after another, as Tell runs on_end.command.
func Callbacks(event string, commands []string, dir, state string, document any, warn func(string)) {
	for _, command := range commands {
		data, err := json.Marshal(document)
		if err == nil {
			err = runCommand(event, command, dir, state, data, commandTime)
		}
		if err != nil {
			warn(fmt.Sprintf("hydra.callbacks: %s: %v", event, err))
		}
	}
}

// runCommand hands data to a shell command, whose output is ours. At the limit, or when a signal asks this process to end, the command
// is killed with all that it has started: what is left would keep the output open that somebody reads to its end.
func runCommand(key, command, dir, state string, data []byte, limit time.Duration) error {
	late, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	ctx, stop := signal.NotifyContext(late, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(data), os.Stderr, os.Stderr
	cmd.Env = append(os.Environ(), "FULCRUM_FOLDER="+dir, "FULCRUM_STATE="+state)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	slow := time.AfterFunc(slowCommand, func() {
		stdout.Message(stdout.Errors(), fmt.Sprintf("%s is still running, for %v at most; Ctrl-C ends it", key, limit))
	})
	defer slow.Stop()
	err := cmd.Run()
	switch ended, failed := errors.AsType[*exec.ExitError](err); {
	case late.Err() != nil:
		return fmt.Errorf("it had not ended after %v and was killed", limit)
	case ctx.Err() != nil:
		return fmt.Errorf("the signal killed it; the run or sweep had ended before (%s)", state)
	case failed && ended.Exited():
		return fmt.Errorf("it ended with exit code %d", ended.ExitCode())
	}
	return err
}

// post sends JSON to an address, of which errors name no more than the host: the rest may hold a secret.
func post(address string, data []byte, limit time.Duration) error {
	client := &http.Client{Timeout: limit, CheckRedirect: secret.SameHost}
	answer, err := client.Post(address, "application/json", bytes.NewReader(data))
	if err != nil {
		u, _ := url.Parse(address) // Validate has parsed it
		if timed, ok := errors.AsType[net.Error](err); ok && timed.Timeout() {
			return fmt.Errorf("%s did not answer within %v", u.Host, limit)
		}
		return fmt.Errorf("%s: %w", u.Host, secret.Cause(err))
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<20))
	if answer.StatusCode >= 300 {
		return fmt.Errorf("%s answers %s", answer.Request.URL.Host, answer.Status)
	}
	return nil
}
