"""Tokenizers and chat templates both ways: the same ids and texts as the tokenizers library and transformers."""

import datetime
import json
import pathlib
import random
import shutil

import jinja2
import pytest
import transformers
import trl
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import peers

PIECES = ["the quick brown fox", "  two  spaces ", "\n\n", "\t", "Ünïcödé ﬁ ǅ", "日本語の文", "🙂👩‍👩‍👧", "1234567", "don't we'll I'M", "a\u0301e\u0308", "\u00a0",
          "x=1;\r\ny", "<", "|im_end|>", "…—“”", "ß", "ﷺ", "\u200b", "İ", "٣٤", "CamelCaseWord", "https://example.org/a?b=c", "</s>", "<pad>",
          "\x04", "a\x16\x1d", "\U000f0000", "12", "  7", "3.14159", "½²Ⅷ", "１２", "<s>", "<|begin_of_text|>", "<|eot_id|>", "[INST]", "<think>", "▁", "a▁▁b",
          "<0x41>", "<0xE2><0x96>", "   ", "end ", "the", "brown", "!?…", "it's", "\r\n\r\n", "한국어", "ไทย", "\ufeff"]


def texts(n=300):
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


# --- Small tokenizers with the rules of published ones. Their class is that of tokenizer.json alone: transformers 5 puts its own rules in
# the place of what tokenizer.json says where tokenizer_config.json names GPT2Tokenizer (SmolLM2) or LlamaTokenizer (Llama 2, Mistral).

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
BYTES = [f"<0x{b:02X}>" for b in range(256)]


def write(folder, tokenizer, edit=lambda data: None, **config):
    """Saves a tokenizer whose tokenizer.json edit changes."""
    data = json.loads(tokenizer.to_str())
    edit(data)
    (folder / "tokenizer.json").write_text(json.dumps(data))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **config}))


def corpus():
    return (peers.ROOT / "README.md").read_text().splitlines() * 2 + texts()


def byte_level(steps, special, alphabet=(), **model):
    made = Tokenizer(models.BPE(**model))
    made.pre_tokenizer, made.decoder = pre_tokenizers.Sequence(steps), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=special, initial_alphabet=list(alphabet), show_progress=False)
    made.train_from_iterator(corpus(), trainer)
    return made


def smollm2(folder):
    made = byte_level([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)],
                      ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])

    def lose(data):  # as the published vocabulary, which has no token for bytes that its texts had not
        vocab = data["model"]["vocab"]
        lost = [letter for letter in "ĄĖĝó" if vocab.pop(letter, None) is not None]
        data["model"]["merges"] = [m for m in data["model"]["merges"] if not any(letter in m[0] + m[1] for letter in lost)]
        data["model"]["vocab"] = {token: i for i, token in enumerate(sorted(vocab, key=vocab.get))}

    write(folder, made, lose, bos_token="<|im_start|>", eos_token="<|im_end|>")


def llama3(folder):
    split = pre_tokenizers.Split(Regex(LLAMA3), "isolated")
    made = byte_level([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)], [], pre_tokenizers.ByteLevel.alphabet(),
                      ignore_merges=True)
    made.add_special_tokens(["<|begin_of_text|>", "<|eot_id|>"])
    start = ("<|begin_of_text|>", made.token_to_id("<|begin_of_text|>"))
    made.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), processors.TemplateProcessing(
        single=f"{start[0]} $A", pair=f"{start[0]} $A {start[0]}:1 $B:1", special_tokens=[start])])

    def forget(data):  # so that some words are tokens that no merge makes
        data["model"]["merges"] = [m for i, m in enumerate(data["model"]["merges"]) if i % 7 != 3]

    write(folder, made, forget, bos_token="<|begin_of_text|>", eos_token="<|eot_id|>", clean_up_tokenization_spaces=True)


def characters(folder, pre, normalizer=None, strip=True, words=True, normalized=False, spell=None):
    """Llama 2 and Mistral: BPE of characters. words: trained on words, or on whole lines, so that merges cross them."""
    made = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Metaspace(split=words)
    special = ["<unk>", "<s>", "</s>"]
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=special + BYTES, limit_alphabet=120, show_progress=False)
    made.train_from_iterator(corpus(), trainer)
    made.pre_tokenizer, made.normalizer = pre, normalizer
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()] + [decoders.Strip(" ", 1, 0)] * strip
    made.decoder = decoders.Sequence(steps)
    made.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])

    def edit(data):
        data["added_tokens"] = [{**t, "normalized": normalized} for t in data["added_tokens"] if t["content"] in special]
        if pre is None:
            data["pre_tokenizer"] = None
        if spell:
            data["pre_tokenizer"] = spell

    write(folder, made, edit, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def metaspace(scheme, split=False):
    return pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)


def qwen3(folder):
    theirs = load(FOLDERS["qwen"])
    theirs.add_tokens([transformers.AddedToken(t, normalized=False) for t in ["<tool_call>", "</tool_call>", "<think>", "</think>"]])
    theirs.save_pretrained(folder)


OLD = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
FOLDERS = {
    "qwen": peers.DATA / "qwen2_5_vl" / "tiny_tied",
    "t5": peers.DATA / "seq2seq" / "tiny_t5",
    "bart": peers.DATA / "seq2seq" / "tiny_bart",
    "qwen3": qwen3,
    "smollm2": smollm2,
    "llama3": llama3,
    "llama2": lambda folder: characters(folder, None, OLD),
    "llama2 normalized": lambda folder: characters(folder, None, OLD, normalized=True, words=False),
    "mistral first": lambda folder: characters(folder, metaspace("first")),
    "mistral always": lambda folder: characters(folder, metaspace("always"), words=False),
    "mistral never": lambda folder: characters(folder, metaspace("never"), strip=False),
    "mistral split": lambda folder: characters(folder, metaspace("first", True)),
    "mistral oldest": lambda folder: characters(
        folder, metaspace("always"), spell={"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}),
}


@pytest.fixture(scope="session")
def published(tmp_path_factory):
    """The folder of a name in FOLDERS, made once."""
    made = {name: folder for name, folder in FOLDERS.items() if not callable(folder)}

    def of(name):
        if name not in made:
            made[name] = tmp_path_factory.mktemp(name.replace(" ", "_"))
            FOLDERS[name](made[name])
        return made[name]

    return of


def load(folder):
    return transformers.AutoTokenizer.from_pretrained(folder)


def backend(folder):
    """The tokenizers library itself, without what transformers' classes add; but for CLIP, whose class makes spaces of its words' ends."""
    if json.loads((folder / "tokenizer.json").read_text())["model"].get("end_of_word_suffix"):
        return load(folder)
    return transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))


@pytest.mark.parametrize("name", FOLDERS)
def test_published(probe, published, name):
    same(probe, backend(published(name)), published(name))


@pytest.mark.parametrize("name", FOLDERS)
def test_saved_by_transformers(probe, published, tmp_path, name):
    """As transformers writes it today."""
    theirs = load(published(name))
    theirs.save_pretrained(tmp_path)
    same(probe, load(tmp_path), tmp_path)


@pytest.mark.parametrize("name", FOLDERS)
def test_added_tokens(probe, published, tmp_path, name):
    theirs = load(published(name))
    theirs.add_tokens(["brown", "Ünï", transformers.AddedToken("fox", single_word=True), transformers.AddedToken("quick", lstrip=True, rstrip=True)])
    theirs.add_special_tokens({"additional_special_tokens" if hasattr(theirs, "additional_special_tokens") else "extra_special_tokens": ["🙂", "<extra>"]})
    theirs.save_pretrained(tmp_path)
    same(probe, load(tmp_path), tmp_path)


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("name", FOLDERS)
def test_saved_by_us(probe, published, tmp_path, name, added):
    theirs, folder = backend(published(name)), published(name)
    if added:
        theirs, folder = load(folder), tmp_path / "added"
        theirs.add_tokens(["brown"])
        theirs.save_pretrained(folder)
        theirs = backend(folder)
    (tmp_path / "ours").mkdir()
    same(probe, theirs, folder, tmp_path / "ours")
    same(probe, load(tmp_path / "ours"), folder)
    same(probe, backend(tmp_path / "ours"), tmp_path / "ours")


def turns(*said):
    roles = {"s": "system", "u": "user", "a": "assistant"}
    return [{"role": roles[t[0]], "content": t[2:]} for t in said]


CHATS = [
    [{"role": "user", "content": "Hello?"}],
    [{"role": "system", "content": "Be short."}, {"role": "user", "content": "a\nb "}, {"role": "assistant", "content": "c"}, {"role": "user", "content": "d"}],
    [{"role": "user", "content": [{"type": "text", "text": "two "}, {"type": "text", "text": "parts"}]}],
    turns("s: Be short.\n", "u:a\nb ", "a:c", "u:\u00a0d\u3000"),
    turns("u:x", "a:<think>\nhm\n</think>\n\nyes ", "u:y"),
    turns("u:x", "a:<think>\nhm\n</think>\n\nyes\n"),
    turns("s:Be /no_think now ", "u:q", "a:\nr", "u:日本 'q' \"z\" <b>&"),
    turns("s:All /system_override", "u:q"),
    turns("u:a", "u:b"),
    turns("a:x", "u:b"),
    turns("s:only"),
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


OURS = json.loads((peers.ROOT / "internal" / "chat" / "testdata" / "templates.json").read_text())["templates"]
THEIRS = {part.stem: part for part in sorted((pathlib.Path(trl.__file__).parent / "chat_templates").glob("*.jinja"))}
PUBLISHED = ["llama3", "llama3_1", "llama3_2", "qwen2_5", "qwen3", "qwen3_instruct_2507", "deepseekv3", "phi3", "llama3_training",
             "qwen3_training"]


class July(datetime.datetime):
    """The day on which our templates are written (docs/model_folders.md)."""

    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26)


@pytest.mark.parametrize("name", [*OURS, *PUBLISHED])
def test_published_templates(probe, published, tmp_path, monkeypatch, name):
    """Templates as published (TRL has them) or with the parts of published ones: the same texts, and an error where theirs is one."""
    monkeypatch.setattr(transformers.utils.chat_template_utils, "datetime", July)
    theirs = load(published("llama2"))
    theirs.chat_template = OURS.get(name) or THEIRS[name].read_text()
    theirs.save_pretrained(tmp_path)
    for chat in CHATS:
        for i, prompt in enumerate([True, False]):
            try:
                want = theirs.apply_chat_template(chat, tokenize=False, add_generation_prompt=prompt)
            except (TypeError, jinja2.exceptions.TemplateError):
                want = None
            try:
                got = probe("render", Folder=str(tmp_path), Messages=[chat])["texts"][i]
            except peers.Refused:
                parts = isinstance(chat[0]["content"], list)  # Python prints a list where the template wants a text: we do not
                assert want is None or parts and "[{'type'" in want, chat
                continue
            assert got == want, chat
