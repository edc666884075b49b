//go:build !core

package tasks

import (
	"strings"
	"testing"

	"fulcrum/configs"
	"fulcrum/internal/list"
)

// What a setting takes from the user's own section by way of a key that does not act is read; what only such a key takes is not.
func TestUnreadThroughWhatDoesNotAct(t *testing.T) {
	for typed, want := range map[string]string{
		"schedule=[rce] +vars.lr=1e-3":                                       "vars.lr",
		"schedule=[rce] +vars.lr=1e-3 sft.lr=${vars.lr}":                     "vars.lr",
		"schedule=[rce] +vars.lr=1e-3 sft.lr=${vars.lr} rce.lr=${sft.lr}":    "",
		"schedule=[rce] +vars.lr=1e-3 rce.lr=${vars.lr} +vars.of.size=small": "vars.of.size",
	} {
		c := composed(t, strings.Fields(typed)...)
		if got := strings.Join(list.Map(c.Unread(), func(s configs.Setting) string { return s.Key }), " "); got != want {
			t.Errorf("%s: %q, want %q", typed, got, want)
		}
	}
	c := composed(t, "schedule=[rce]", "+vars.base_lr=1e-3")
	if note := c.UnreadNote(c.Unread()); !strings.HasSuffix(note, ": rce.lr='${vars.base_lr}' takes the value") {
		t.Errorf("the phase that runs is not named: %s", note)
	}
}

// Of siblings that may be meant, those that act with the chosen data are.
func TestUnknownSiblingActs(t *testing.T) {
	schema, err := Schema(Frozen)
	if err != nil {
		t.Fatal(err)
	}
	for data, want := range map[string]string{"beams": "data.train_ratio", "okvqa": "data.val_ratio"} {
		_, err := configs.Compose(configs.Request{Library: configs.Library(), Schema: schema, Overrides: []string{"data=" + data,
			"data.val_fraction=0.1"}})
		if err == nil || !strings.HasSuffix(err.Error(), "(did you mean "+want+"?)") {
			t.Errorf("data=%s: %v, want %s", data, err, want)
		}
	}
}
