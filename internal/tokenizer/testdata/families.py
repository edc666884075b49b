"""Writes families.json: tokenizer.json files of a few tokens with the rules of published families, and what the tokenizers library
0.23 makes of texts with them. Run in this folder: python3 families.py"""
import json
from tokenizers import Tokenizer

SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
BYTES = [f"<0x{b:02X}>" for b in range(256)]


def byte_level(use_regex):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def file(added, tokens, merges, pre, decoder, post=None, normalizer=None, normalized=False, **model):
    """added come first; their flags: special in <| |> or <s> form."""
    vocab = {token: i for i, token in enumerate([*added, *tokens, *[a + b for a, b in merges if a + b not in tokens]])}
    return {"version": "1.0", "truncation": None, "padding": None, "normalizer": normalizer, "pre_tokenizer": pre, "post_processor": post,
            "decoder": decoder,
            "added_tokens": [{"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": normalized,
                              "special": token != "<x>"} for i, token in enumerate(added)],
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, **model, "vocab": vocab,
                      "merges": [f"{a} {b}" for a, b in merges]}}


def template(token):
    return {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {token: {"id": token, "ids": [0], "tokens": [token]}}}


def characters(pre, normalizer, strip=True, merges=(), **more):
    steps = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
    if strip:
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    merges = [*merges, ("▁", "a"), ("a", "b"), ("▁a", "b"), ("▁", "▁"), ("b", "c")]
    return file(["<s>", "</s>", "<x>"], [*BYTES, *"▁abcd日"], merges, pre, {"type": "Sequence", "decoders": steps}, template("<s>"),
                normalizer,
                unk_token="<x>", fuse_unk=True, byte_fallback=True, **more)


def metaspace(**how):
    return {"type": "Metaspace", "replacement": "▁", **how}


OLD = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
                                           {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
def beside(data, token):
    """An added token that the model lacks, found only where it stands alone."""
    data["added_tokens"].append({**data["added_tokens"][0], "id": len(data["model"]["vocab"]), "content": token, "single_word": True})
    return data


FAMILIES = {
    # bytes that the vocabulary lacks are left out; a digit cuts
    "smollm2": file(["<|im_end|>"], [*"Ġab12Ċ"], [("a", "b"), ("Ġ", "Ġ"), ("1", "2"), ("Ġ", "1")],
                    {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level(True)]},
                    byte_level(True)),
    # three digits are one piece; a piece that is a token, "Ġabba", needs no merge
    "llama3": beside(file(["<|begin|>"], [*"Ġab12Ċ", "Ġabba", "12121"], [("a", "b"), ("Ġ", "a"), ("1", "2"), ("12", "1"), ("2", "1")],
                   {"type": "Sequence", "pretokenizers": [
                       {"type": "Split", "pattern": {"Regex": SPLIT}, "behavior": "Isolated", "invert": False},
                                                         byte_level(False)]}, byte_level(True),
                   {"type": "Sequence", "processors": [byte_level(True), template("<|begin|>")]}, ignore_merges=True), "abb"),
    "llama2": characters(None, OLD),
    "llama2, normalized added tokens": characters(None, OLD, normalized=True),
    "llama2, merges across words": characters(None, OLD, merges=[("b", "▁"), ("b▁", "a")]),
    "mistral, first": characters(metaspace(prepend_scheme="first", split=False), None),
    "mistral, always": characters(metaspace(prepend_scheme="always", split=False), None),
    "mistral, never": characters(metaspace(prepend_scheme="never", split=False), None, strip=False),
    "mistral, split": characters(metaspace(prepend_scheme="first", split=True), None),
    "mistral, oldest": characters(metaspace(add_prefix_space=True), None),
}
TEXTS = ["", " ", "ab", " ab", "  ab", "ab  ab ", "abba abba", "ab 12 121a", "a  12", "a\n\n ab", "a\x04b",
         "日本 é", "\U0001f642a", "x", "ab<s>ab", "<s>ab",
         "ab <x> ab", "<x>", "ab <x>", "a</s>", "ab<|im_end|>1<|begin|>a", "▁a▁▁b", "12121212", "<0x41>", "1abb abb"]
IDS = [[1 + 2 + 0xE6, 5], [3 + 0xE6, 3 + 0x97, 3 + 0xA5], [3 + 0xE6, 3 + 0x97, 259], [259, 3 + 0xFF, 3 + 0x41]]

with open("families.json", "w") as out:
    families = []
    for name, data in FAMILIES.items():
        t = Tokenizer.from_str(json.dumps(data))
        cases = []
        for text in TEXTS:
            ids = t.encode(text, add_special_tokens=False).ids
            cases.append({"text": text, "ids": ids, "special": t.encode(text).ids})
        known = [i for i in IDS if max(i) < t.get_vocab_size()]
        decoded = [{"ids": ids, "text": t.decode(ids, skip_special_tokens=False), "hidden": t.decode(ids)}
                   for ids in [c["special"] for c in cases] + known]
        lines = lambda cases: "[\n" + ",\n".join(json.dumps(c, ensure_ascii=False, separators=(",", ":")) for c in cases) + "\n]"
        families.append('{"name":%s,\n"file":%s,\n"cases":%s,\n"decoded":%s}' % (
            json.dumps(name), json.dumps(data, ensure_ascii=False, separators=(",", ":")), lines(cases), lines(decoded)))
    out.write("[\n" + ",\n".join(families) + "\n]\n")
