package lvlm

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"fulcrum/internal/chat"
	"fulcrum/internal/webapi"
)

// An answer ends where its turn does, as in this process: a model that does not know the template's end of a turn goes on behind it.
func TestAnswersEndWithTheirTurn(t *testing.T) {
	for kind, reply := range map[string]string{
		"vllm":        `{"choices": [{"message": {"content": "red\nQuestion: what"}}]}`,
		"sglang":      `{"text": "red\nQuestion: what", "meta_info": {"prompt_tokens": 3}}`,
		"completions": `{"choices": [{"text": " red\nQuestion: what"}]}`,
	} {
		stand := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, reply) }))
		defer stand.Close()
		client, err := webapi.New(stand.URL, nil, 1)
		if err != nil {
			t.Fatal(err)
		}
		s := &server{opt: DefaultOptions(), client: client, throttle: &throttle{most: 1, bound: 1}, rendering: &rendering{ending: "\n"}}
		if s.rendering.template, err = chat.Parse(plainTemplate); err != nil {
			t.Fatal(err)
		}
		s.protocol = map[string]protocol{"vllm": vllm{s}, "sglang": sglang{s}, "completions": completions{s}}[kind]
		if got, err := s.Answer(t.Context(), []Prompt{{Query: Example{Question: "what colour?"}}}); err != nil || got[0].Text != "red" {
			t.Errorf("%s: %+v, %v, want red", kind, got, err)
		}
	}
}
