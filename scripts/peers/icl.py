"""Prompts with demonstrations as a plain program on transformers scores them: a chat of image, question and answer a
demonstration, the whole text tokenised at once, the answer's tokens counted from the end."""

import json
import random
import shutil

import torch
import transformers
from PIL import Image

import peers

FOLDER = peers.DATA / "qwen2_5_vl" / "tiny_tied"
PICTURES = [peers.DATA / "qwen2_5_vl" / "images" / f"img{i}.png" for i in range(4)]
WORDS = "red blue green a an the cat dog, on under left right two three; round square? Is it what colour shape of".split()


def example(draw, pictures=PICTURES):
    answer = " ".join(draw.choice(WORDS) for _ in range(draw.randint(1, 3)))
    question = " ".join(draw.choice(WORDS) for _ in range(draw.randint(2, 9))) + "?"
    return {"Image": str(draw.choice(pictures)), "Question": question, "Answer": answer}


def prompts(n, seed, pictures=PICTURES):
    """Queries with 0 to 3 demonstrations, some of them shared with the prompt before."""
    draw, out, shots = random.Random(seed), [], []
    for i in range(n):
        shots = shots[: draw.randint(0, len(shots))]
        while len(shots) < i % 4:
            shots = shots + [example(draw, pictures)]
        out.append({"Shots": shots, "Query": example(draw, pictures)})
    return out


def messages(prompt):
    out = []
    for e in [*prompt["Shots"], prompt["Query"]]:
        out.append({"role": "user", "content": [{"type": "image"}, {"type": "text", "text": e["Question"]}]})
        out.append({"role": "assistant", "content": e["Answer"]})
    return out[:-1]


class Plain:
    """A model folder in transformers. Batches are padded on the right, as such programs do."""

    def __init__(self, folder, **options):
        self.processor = transformers.AutoProcessor.from_pretrained(folder, use_fast=False)
        self.model = transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32, **options).eval()

    def inputs(self, asked, answers=True, side="right"):
        end = "<|im_end|>"
        texts, images = [], []
        for p in asked:
            text = self.processor.apply_chat_template(messages(p), tokenize=False, add_generation_prompt=True)
            texts.append(text + p["Query"]["Answer"] + end if answers else text)
            images += [Image.open(e["Image"]) for e in [*p["Shots"], p["Query"]]]
        return self.processor(text=texts, images=images, return_tensors="pt", padding=True, padding_side=side)

    @torch.no_grad()
    def score(self, asked):
        """Log-probabilities of each answer's tokens, the end token included."""
        given = self.inputs(asked)
        logits = self.model(**given).logits
        out = []
        for row, mask, z, p in zip(given["input_ids"], given["attention_mask"], logits, asked):
            tail = self.processor.tokenizer(p["Query"]["Answer"] + "<|im_end|>")["input_ids"]
            end = int(mask.sum())
            assert row[end - len(tail) : end].tolist() == tail
            logp = z[end - len(tail) - 1 : end - 1].double().log_softmax(-1)
            out.append(logp.gather(1, torch.tensor(tail)[:, None])[:, 0].tolist())
        return out

    @torch.no_grad()
    def answer(self, prompt, tokens):
        given = self.inputs([prompt], answers=False)
        made = self.model.generate(**given, max_new_tokens=tokens, do_sample=False, num_beams=1, repetition_penalty=1.0)
        return self.processor.tokenizer.decode(made[0, given["input_ids"].shape[1] :], skip_special_tokens=True).strip()


def infoscore(logp, without):
    """exp(-mean NLL with the demonstrations) - exp(-mean NLL without the last one)."""
    return torch.tensor(logp).mean().exp().item() - torch.tensor(without).mean().exp().item()


def folder_of(model, to):
    """Saves a model beside the fixtures' processor."""
    model.save_pretrained(to)
    for name in "tokenizer.json tokenizer_config.json chat_template.json preprocessor_config.json generation_config.json".split():
        if (FOLDER / name).exists():
            shutil.copy(FOLDER / name, to / name)


def without_last(p):
    """The prompt without its last demonstration, which an InfoScore is the gain of."""
    return {"Shots": p["Shots"][:-1], "Query": p["Query"]}


def golden():
    """Writes experiments/icl/testdata/infoscores.json: prompts over the fixtures' model and pictures."""
    plain, lines = Plain(FOLDER), []
    for p in prompts(8, 5):
        named = json.loads(json.dumps(p))
        for e in [*named["Shots"], named["Query"]]:
            e["Image"] = "images/" + e["Image"].rsplit("/", 1)[1]
        lines.append({"prompt": named, "logprobs": plain.score([p])[0], "answer": plain.answer(p, 5)})
    out = peers.ROOT / "experiments" / "icl" / "testdata" / "likelihoods.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text("[\n" + ",\n".join(json.dumps(line) for line in lines) + "\n]\n")


if __name__ == "__main__":
    golden()
