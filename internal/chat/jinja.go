package chat

import "errors"

func parseJinja(source string) (*Template, error) {
	return nil, errors.New("chat template: only those of Qwen2.5-VL and Qwen2.5 are known")
}
