package grpo

import (
	"fmt"
	"os"
	"testing"

	"fulcrum/internal/torchx"
)

func TestMain(m *testing.M) {
	if err := torchx.Load(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
