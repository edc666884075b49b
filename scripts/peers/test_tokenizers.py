"""Tokenizers and chat templates both ways: the same ids and texts as the tokenizers library and transformers."""

import json
import random
import shutil

import pytest
import transformers

import peers

FOLDERS = {"qwen": peers.DATA / "qwen2_5_vl" / "tiny_tied", "t5": peers.DATA / "seq2seq" / "tiny_t5", "bart": peers.DATA / "seq2seq" / "tiny_bart"}
PIECES = ["the quick brown fox", "  two  spaces ", "\n\n", "\t", "Ünïcödé ﬁ ǅ", "日本語の文", "🙂👩‍👩‍👧", "1234567", "don't we'll I'M", "a\u0301e\u0308", "\u00a0",
          "x=1;\r\ny", "<", "|im_end|>", "…—“”", "ß", "ﷺ", "\u200b", "İ", "٣٤", "CamelCaseWord", "https://example.org/a?b=c", "</s>", "<pad>"]


def texts(n=120):
    draw = random.Random(3)
    made = ["", " ", "a", *PIECES]
    while len(made) < n:
        made.append("".join(draw.choice(PIECES) + draw.choice(["", " ", "\n"]) for _ in range(draw.randint(1, 6))))
    return made


def same(probe, theirs, folder, out=""):
    answer = probe("tokenize", Folder=str(folder), Texts=texts(), Out=str(out) if out else "")
    for i, text in enumerate(texts()):
        plain, special = answer["ids"][2 * i] or [], answer["ids"][2 * i + 1] or []
        assert plain == theirs.encode(text, add_special_tokens=False), repr(text)
        assert special == theirs.encode(text), repr(text)
        shown = theirs.decode(plain, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        assert answer["texts"][2 * i] == shown, f"{text!r}: {answer['texts'][2 * i]!r}, want {shown!r}"
        hidden = theirs.decode(plain, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert answer["texts"][2 * i + 1] == hidden, repr(text)


def load(folder):
    return transformers.AutoTokenizer.from_pretrained(folder)


def backend(folder):
    """The tokenizers library itself, without what transformers' classes add; but for CLIP, whose class makes spaces of its words' ends."""
    if json.loads((folder / "tokenizer.json").read_text())["model"].get("end_of_word_suffix"):
        return load(folder)
    return transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))


@pytest.mark.parametrize("name", FOLDERS)
def test_published(probe, name):
    same(probe, backend(FOLDERS[name]), FOLDERS[name])


@pytest.mark.parametrize("name", FOLDERS)
def test_saved_by_transformers(probe, tmp_path, name):
    """As transformers writes it today."""
    theirs = load(FOLDERS[name])
    theirs.save_pretrained(tmp_path)
    same(probe, load(tmp_path), tmp_path)


@pytest.mark.parametrize("name", FOLDERS)
def test_added_tokens(probe, tmp_path, name):
    theirs = load(FOLDERS[name])
    theirs.add_tokens(["brown", transformers.AddedToken("fox", single_word=True), transformers.AddedToken("quick", lstrip=True, rstrip=True)])
    theirs.add_special_tokens({"additional_special_tokens" if hasattr(theirs, "additional_special_tokens") else "extra_special_tokens": ["🙂", "<extra>"]})
    theirs.save_pretrained(tmp_path)
    same(probe, load(tmp_path), tmp_path)


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("name", FOLDERS)
def test_saved_by_us(probe, tmp_path, name, added):
    theirs, folder = backend(FOLDERS[name]), FOLDERS[name]
    if added:
        folder = tmp_path / "added"
        theirs = load(FOLDERS[name])
        theirs.add_tokens(["brown"])
        theirs.save_pretrained(folder)
        theirs = backend(folder)
    (tmp_path / "ours").mkdir()
    same(probe, theirs, folder, tmp_path / "ours")
    same(probe, load(tmp_path / "ours"), folder)
    same(probe, backend(tmp_path / "ours"), tmp_path / "ours")


CHATS = [
    [{"role": "user", "content": "Hello?"}],
    [{"role": "system", "content": "Be short."}, {"role": "user", "content": "a\nb "}, {"role": "assistant", "content": "c"}, {"role": "user", "content": "d"}],
    [{"role": "user", "content": [{"type": "text", "text": "two "}, {"type": "text", "text": "parts"}]}],
]


@pytest.mark.parametrize("how", ["file", "jinja", "inside"])
def test_chat_templates(probe, tmp_path, how):
    """The template where old and new transformers keep it, rendered with and without the generation prompt."""
    for part in FOLDERS["qwen"].iterdir():
        if part.suffix == ".json" and part.name != "chat_template.json":
            shutil.copy(part, tmp_path)
    template = json.loads((FOLDERS["qwen"] / "chat_template.json").read_text())["chat_template"]
    if how == "file":
        shutil.copy(FOLDERS["qwen"] / "chat_template.json", tmp_path)
    theirs = load(FOLDERS["qwen"])
    theirs.chat_template = template
    if how == "jinja":
        theirs.save_pretrained(tmp_path)
        assert (tmp_path / "chat_template.jinja").exists()
    if how == "inside":
        theirs.save_pretrained(tmp_path, save_jinja_files=False)
        assert "chat_template" in json.loads((tmp_path / "tokenizer_config.json").read_text())
    for chat in CHATS:
        got = probe("render", Folder=str(tmp_path), Messages=[chat])["texts"]
        for text, prompt in zip(got, [True, False]):
            assert text == theirs.apply_chat_template(chat, tokenize=False, add_generation_prompt=prompt)
