package chat

import _ "embed"

// qwenVLSource is the published template of Qwen2.5-VL; Parse knows it and takes the one in Go.
//
//go:embed qwen_vl.jinja
var qwenVLSource string

// qwenTextSource is that of Qwen2.5 without its part for tools.
//
//go:embed qwen_text.jinja
var qwenTextSource string

// chatMLSource is that of ChatML.
//
//go:embed chatml.jinja
var chatMLSource string
