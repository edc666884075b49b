"""Compares 20 greedy answers of a model folder with transformers' own, token for token: check.py FOLDER. Text becomes tokens and chat
template by either side's own reading of the folder; both compute in float32."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is downloaded
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import torch
import transformers

RUN = pathlib.Path(__file__).resolve().parents[2] / "bin" / "run"
TOKENS = 40
SYSTEM = {"role": "system", "content": "You answer in one short sentence."}
ASKED = [
    "What is the capital of France?",
    "What is 17 + 25?",
    "Mia has 12 apples and gives away 5. How many are left?",
    "Name three colours.",
    "Why is the sky blue?",
    "Write a haiku about rain.",
    "Translate to German: good morning, my friend.",
    "Wie heißt die Hauptstadt von Österreich?",
    "¿Cuántos días tiene una semana?",
    "用中文说你好。",
    "What does this do?\n\n```python\nfor i in range(10):\n    print(i ** 2)\n```",
    "Count from 1998 to 2003.",
    "Who wrote \"Romeo and Juliet\"? Don't say more than the name.",
    "Which is larger, 3.14159 or 2.71828?",
    "Tell me a joke 🙂",
    "  Spaces   and\ttabs\r\nand lines,\n\n\nplease repeat them.  ",
    "List the planets of the solar system.",
    "Explain LoRA to a child.",
    "Complete: to be, or not to",
    "naïve café ﬁve x² १२३",
]


def ours(folder, prompts):
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        lines = [json.dumps({"id": i, "messages": messages}) for i, messages in enumerate(prompts)]
        (scratch / "prompts.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        command = [RUN, "task=generate", "policy=qwen2_5_vl", f"vl.path={folder}", "vl.dtype=float32", f"generate.in={scratch / 'prompts.jsonl'}"]
        command += [f"generate.out={scratch / 'out.jsonl'}", f"generate.max_new_tokens={TOKENS}", "generate.do_sample=false"]
        done = subprocess.run([*command, f"hydra.run.dir={scratch / 'run'}"], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"bin/run task=generate ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return [json.loads(line) for line in (scratch / "out.jsonl").read_text(encoding="utf-8").splitlines()]


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    prompts = [[SYSTEM] * (i % 2) + [{"role": "user", "content": q}] for i, q in enumerate(ASKED)]
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    equal = compared = 0
    for messages, got in zip(prompts, ours(folder, prompts), strict=True):
        made = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        with torch.no_grad():
            want = model.generate(**made, max_new_tokens=TOKENS, do_sample=False)[0, made["input_ids"].shape[1] :].tolist()
        compared += len(want)
        if got["completion_ids"] == want and got["prompt_tokens"] == made["input_ids"].shape[1]:
            equal += 1
            continue
        print(f"{messages[-1]['content']!r}: a prompt of {got['prompt_tokens']} tokens, transformers' has {made['input_ids'].shape[1]}\n"
              f"  ours:   {got['completion']!r}\n  theirs: {tokenizer.decode(want, skip_special_tokens=True)!r}")
    print(f"{equal} of {len(prompts)} greedy answers ({compared} tokens) equal those of transformers {transformers.__version__}, token for token")
    sys.exit(equal != len(prompts))


if __name__ == "__main__":
    main()
