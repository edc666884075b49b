package build

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The name of a program ends with what Go's own tool says of its contents.
func TestNameKnowsTheContents(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "tool", "buildid", self).Output()
	if err != nil {
		t.Skip("no Go here: ", err)
	}
	id := strings.TrimSpace(string(out))
	if contents := id[strings.LastIndexByte(id, '/')+1:]; contents == "" || !strings.HasSuffix(Name(), " "+contents) {
		t.Errorf("%q does not end with the last part of %s", Name(), id)
	}
	if !strings.HasPrefix(Name(), Version+" ") {
		t.Errorf("%q does not begin with %s", Name(), Version)
	}
}
