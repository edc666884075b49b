"""Writes cases.json: texts, their pieces by the rules of Qwen2 and GPT-2 (the regex module), and their
ids under tiny/ by the plainest BPE there is. Run in this folder: python3 make.py TEXTS.json, a list of
texts."""
import json, sys, unicodedata, regex

QWEN2 = regex.compile(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT2 = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")

def letters():
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, n = {b: chr(b) for b in plain}, 0
    for b in range(256):
        if b not in table:
            table[b] = chr(256 + n)
            n += 1
    return table

LETTERS = letters()
vocab = json.load(open("tiny/vocab.json"))
ranks = {tuple(line.split(" ")): i for i, line in enumerate(open("tiny/merges.txt").read().split("\n")[1:]) if line}
added = {int(k): v["content"] for k, v in json.load(open("tiny/tokenizer_config.json"))["added_tokens_decoder"].items()}
by_content = {v: k for k, v in added.items()}
cut = regex.compile("(" + "|".join(regex.escape(t) for t in sorted(by_content, key=len, reverse=True)) + ")")

def bpe(piece):
    parts = [LETTERS[b] for b in piece.encode()]
    while True:
        ranked = [(ranks[p], i) for i, p in enumerate(zip(parts, parts[1:])) if p in ranks]
        if not ranked:
            return [vocab[p] for p in parts]
        _, i = min(ranked)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]

def encode(text):
    ids = []
    for part in cut.split(text):
        if part in by_content:
            ids.append(by_content[part])
        else:
            for piece in QWEN2.findall(unicodedata.normalize("NFC", part)):
                ids += bpe(piece)
    return ids

texts = json.load(open(sys.argv[1]))
cases = [{"text": t, "qwen2": QWEN2.findall(t), "gpt2": GPT2.findall(t), "ids": encode(t)} for t in texts]
with open("cases.json", "w") as f:
    f.write("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False, separators=(",", ":")) for c in cases) + "\n]\n")
